"""The name of a folder of samples, which says how they were drawn. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evals.files.belonging import TAG
from quatro.runs.directory import INSIDE
from quatro.types import Sampling


@dataclass(frozen=True)
class Tag:
    """``T1-p0.7-step000100``: temperature, top_p, top_k where it is on, and the step of the checkpoint.

    ``is_inside``: the checkpoint was saved inside the iteration after ``step``.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    step: int | None = None
    is_inside: bool = False

    @classmethod
    def of(cls, sampling: Sampling, *, step: int | None = None, is_inside: bool = False) -> Tag:
        """The tag of samples drawn like this."""
        return cls(sampling.temperature, sampling.top_p, sampling.top_k, step, is_inside)

    @classmethod
    def parse(cls, name: str) -> Tag | None:
        """The tag that is written ``name``; None for any other name, such as one given with --tag."""
        match = TAG.fullmatch(name)
        if match is None:
            return None
        temperature, top_p, top_k, step, inside = match.groups()
        tag = cls(float(temperature), float(top_p), int(top_k or 0), None if step is None else int(step), bool(inside))
        return tag if str(tag) == name else None

    def __str__(self) -> str:
        parts = [f"T{self.temperature:g}", f"p{self.top_p:g}"]
        if self.top_k:
            parts.append(f"k{self.top_k}")
        if self.step is not None:
            parts.append(f"step{self.step:06d}{INSIDE if self.is_inside else ''}")
        return "-".join(parts)

    def folder(self, run: Path) -> Path:
        """Where the samples of this tag lie in a run, or in a folder that stands for an untrained model."""
        return run / "samples" / str(self)
