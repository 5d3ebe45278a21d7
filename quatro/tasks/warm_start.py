"""What the policy of an embedded benchmark is made of: its vocabulary, its size, and the rows from which it learns."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

# The first tokens of every vocabulary.
SPECIAL_TOKENS = PAD, EOS, UNKNOWN = "<pad>", "<eos>", "_"
PAD_ID, EOS_ID = 0, 1


@dataclass(frozen=True)
class WarmstartRows:
    """Rows for supervised learning: prompt, answer, ``<eos>``, then ``<pad>`` up to one width.

    ``token_ids`` int64 (rows, width); ``answer_mask`` bool (rows, width), True on the answer and its ``<eos>``.
    """

    token_ids: NDArray[np.int64]
    answer_mask: NDArray[np.bool_]

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, eos_id: int, pad_id: int) -> "WarmstartRows":
        """A row for each (prompt, answer) in token ids."""
        width = max((len(prompt) + len(answer) for prompt, answer in pairs), default=0) + 1
        token_ids = np.full((len(pairs), width), pad_id, dtype=np.int64)
        mask = np.zeros(token_ids.shape, dtype=bool)
        for row, is_answer, (prompt, answer) in zip(token_ids, mask, pairs, strict=True):
            end = len(prompt) + len(answer) + 1
            row[:end] = [*prompt, *answer, eos_id]
            is_answer[len(prompt) : end] = True
        return cls(token_ids, mask)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by their ids, with `SPECIAL_TOKENS` first.

    In a text there is one space between tokens; or nothing, if there is a ``pattern``, which finds the next token.
    """

    tokens: tuple[str, ...]
    pattern: str = ""

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def encode(self, text: str) -> list[int]:
        """Token ids; raises ValueError, which shows the text, if a part of it is in no token."""
        pieces = re.findall(self.pattern, text) if self.pattern else text.split()
        if not all(piece in self.ids for piece in pieces) or (self.pattern and "".join(pieces) != text):
            raise ValueError(f"not all of {text[:120]!r} is in the vocabulary")
        return [self.ids[piece] for piece in pieces]

    def rows(self, pairs: Sequence[tuple[str, str]]) -> WarmstartRows:
        """A row for each (prompt, answer)."""
        ids = {text: self.encode(text) for text in chain.from_iterable(pairs)}
        return WarmstartRows.of([(ids[prompt], ids[answer]) for prompt, answer in pairs], eos_id=EOS_ID, pad_id=PAD_ID)


@dataclass(frozen=True)
class WarmStart(ABC):
    """Architecture and first training of an embedded policy; its hash names the cached folder."""

    vocabulary: ClassVar[Vocabulary]

    hidden_size: int = 64
    num_heads: int = 2  # head_dim 32, the smallest that vLLM's CPU attention takes
    num_layers: int = 2
    mlp_size: int = 192
    max_positions: int = 64
    steps: int = 1200
    rows: int = 128
    lr: float = 4e-3
    warmup_steps: int = 100
    max_grad_norm: float = 1.0
    random_target_share: float = 0.0  # countdown's, but part of every hash
    seed: int = 0
    recipe: int = 1  # raise when the code changes what comes out

    @property
    def digest(self) -> str:
        text = json.dumps([asdict(self), " ".join(self.vocabulary.tokens)], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    @abstractmethod
    def draw(self, num_rows: int) -> WarmstartRows:
        """The rows to learn from, the same in every call."""

    def is_enough(self, losses: Sequence[float]) -> bool:
        """Whether training ends before its last step, from the loss of each step so far."""
        return False
