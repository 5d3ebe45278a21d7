"""One random stream for each rollout: its identity gives the seed, and (seed, position) gives each uniform.

There is no state and no order: batches, ranks and resumes change nothing. The uniforms are splitmix64 at a position
(Steele, Lea and Flood, OOPSLA 2014; constants of the reference C code by Vigna), computed in numpy, so they are the
same for every device.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

_MASK_64 = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def rollout_seed(run_seed: int, iteration: int, prompt_key: str, rollout_index: int) -> int:
    """64-bit seed of rollout ``rollout_index`` of the prompt ``prompt_key`` at ``iteration`` of a training run."""
    return _hash64(b"quatro.rollout", (run_seed, iteration, rollout_index), (prompt_key,))


def sample_seed(seed: int, benchmark: str, problem_id: str, sample_index: int) -> int:
    """64-bit seed of sample ``sample_index`` of a benchmark problem."""
    return _hash64(b"quatro.sample", (seed, sample_index), (benchmark, problem_id))


def uniforms(seeds: NDArray[np.uint64], step: int | NDArray[np.uint64]) -> NDArray[np.float64]:
    """The uniforms in [0, 1), multiples of 2^-53, that streams ``seeds`` hold at position ``step`` (broadcast)."""
    position = np.asarray(step, dtype=np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the algorithm
        bits = seeds + position * _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
        bits = bits ^ (bits >> np.uint64(31))
    uniform: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def _hash64(purpose: bytes, numbers: tuple[int, ...], texts: tuple[str, ...]) -> int:
    """blake2b of the fields, each with a fixed width or its length in front, so that no two lists of fields agree."""
    digest = hashlib.blake2b(
        struct.pack(f"<{len(numbers)}Q", *(n & _MASK_64 for n in numbers)), digest_size=8, person=purpose
    )
    for text in texts:
        encoded = text.encode("utf-8")
        digest.update(struct.pack("<Q", len(encoded)) + encoded)
    return int.from_bytes(digest.digest(), "little")
