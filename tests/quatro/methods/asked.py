"""What methods get besides rewards where their needs ask for it."""

import torch

from quatro.types import Needs


def asked(needs: Needs, num_rows: int) -> dict[str, torch.Tensor]:
    """The keyword arguments of `advantages` for rows of different lengths, likelihoods and solutions."""
    generator = torch.Generator().manual_seed(2)
    length_B = torch.randint(0, 7, (num_rows,), generator=generator)
    logp_B = -length_B * torch.rand(num_rows, generator=generator, dtype=torch.float64)
    found = {"old_logp_B": logp_B, "length_B": length_B} if needs.old_logp else {}
    return found | ({"solution_B": length_B // 2 - 1} if needs.solutions else {})
