"""A setting of the clustering, and its words in tables, figures and messages."""

from __future__ import annotations

from typing import NamedTuple

from evals.similarity.catalogue import SIMILARITIES


class Setting(NamedTuple):
    """What counts as the same solution; ``threshold`` is None for `exact`."""

    similarity: str
    threshold: float | None
    linkage: str
    tokens: str

    @classmethod
    def of(cls, row: object) -> Setting | None:
        """The setting that a row of a document names; None where it names none."""
        similarity, threshold, linkage, tokens = (getattr(row, name, None) for name in cls._fields)
        return cls(similarity, threshold, linkage or "", tokens or "") if similarity else None

    def __str__(self) -> str:
        return self.words()

    def words(self, sign: str = ">=") -> str:
        """`exact`, or `tfidf >= 0.9, components, math tokens`; the tokens only where they make a difference."""
        known = SIMILARITIES.get(self.similarity)
        has_tokens = (known is not None and known.has_tokens) or self.tokens == "code"  # `code` changes every text
        return self.similarity + self.reach(sign) + (f", {self.tokens} tokens" if has_tokens else "")

    def reach(self, sign: str = ">=") -> str:
        """` >= 0.9, components`; empty where there is no threshold."""
        return "" if self.threshold is None else f" {sign} {self.threshold:g}, {self.linkage}"
