"""A sequence to which an engine with weights of its own and the policy must give equal log-probabilities after a sync.

Stale weights, a head packed from old weights, or keys and values cached under them show in the log-probabilities and
nowhere else: training would go on and learn from the wrong policy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evals.errors import DivergedError
from quatro.rollout.engine import uniforms
from quatro.types import Prompt, Rollout, Sampling

# Longer than one block of vLLM's prefix cache (16 tokens on a GPU, 128 on a CPU), so that stale blocks would be used.
PROMPT_TOKENS = 160
RESPONSE_TOKENS = 32
SEED = 0x9D0BE

# Nats a token. In float32 engine and policy differ by rounding only (2e-5 was seen), so every token counts. In
# bfloat16 one unlikely token may be off by more than 0.1 with the right weights; wrong ones shift all of them.
LARGEST_FLOAT32 = 1e-4
MEAN_BFLOAT16 = 0.12

Score = Callable[[Prompt, Rollout], Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """The prompt that the engine draws from after a sync, and ``score``, the policy's log-probabilities of a response.

    ``sampling`` has the temperature at which the policy scores, and no truncation. Engine and policy compute in
    ``dtype``.
    """

    prompt: Prompt
    sampling: Sampling
    score: Score
    dtype: str = "float32"

    def compare(self, rollout: Rollout) -> dict[str, float]:
        """Metrics of the difference between ``rollout.logp`` and the policy's log-probabilities.

        Raises DivergedError if it is larger than rounding explains, or not finite.
        """
        assert rollout.logp is not None
        engine = np.asarray(rollout.logp, dtype=np.float64)
        policy = np.asarray(self.score(self.prompt, rollout), dtype=np.float64)
        gap = np.abs(engine - policy)
        mean, largest = float(gap.mean()), float(gap.max())
        is_float32 = self.dtype == "float32"
        found, allowed = (largest, LARGEST_FLOAT32) if is_float32 else (mean, MEAN_BFLOAT16)
        if not found <= allowed:  # NaN is not
            worst = int(np.argmax(gap))
            raise DivergedError(
                f"after the weights were sent, engine and policy disagree about a probe of {len(self.prompt.token_ids)}"
                f" + {len(gap)} tokens by {found:.3g} nats ({'at most' if is_float32 else 'on average'}; allowed in "
                f"{self.dtype}: {allowed:g}): response token {worst} has log-probability {engine[worst]:.5f} in the "
                f"engine and {policy[worst]:.5f} in the policy. The engine would sample from another model than the "
                "one that learns; train with -s rollout.engine=transformers"
            )
        return {"sync/probe_dlogp_mean": mean, "sync/probe_dlogp_max": largest}


def make_probe(
    score: Score, *, vocabulary: Sequence[int], context: int | None, temperature: float, dtype: str
) -> Probe:
    """A probe of fixed pseudo-random ids out of ``vocabulary`` (no special tokens), as long as ``context`` allows."""
    num_response = RESPONSE_TOKENS if context is None else min(RESPONSE_TOKENS, max(1, context // 4))
    num_prompt = PROMPT_TOKENS if context is None else min(PROMPT_TOKENS, context - num_response)
    drawn = uniforms(np.array([SEED], dtype=np.uint64), np.arange(num_prompt, dtype=np.uint64))
    ids = tuple(vocabulary[math.floor(u * len(vocabulary))] for u in drawn)
    prompt = Prompt("probe", "probe", "", None, "", ids)
    return Probe(prompt, Sampling(temperature=temperature, max_new_tokens=num_response), score, dtype)


def probe_vocabulary(tokenizer: Any, num_embeddings: int) -> list[int]:
    """Ordinary ids that the model can read, ascending."""
    return sorted({id for id in tokenizer.get_vocab().values() if id < num_embeddings} - set(tokenizer.all_special_ids))


def policy_score(policy: Any, prompt: Prompt, rollout: Rollout) -> Sequence[float]:
    """As `Probe.score`: the log-probabilities that the policy's own forward pass gives to a rollout."""
    import torch

    from quatro.policy.rows import collate

    advantage_B = torch.zeros(1, dtype=torch.float64)
    width = len(rollout.token_ids)
    rows = collate([prompt], [[rollout]], advantage_B, max_new_tokens=width, device=policy.device)
    logp: list[float] = policy.score(rows).logp_BT[0].tolist()
    return logp
