"""The similarities that come with quatro, an entry each, and the settings of a clustering, in words.

An entry is data alone. Its function is imported when it is first used, so that help and figures list names without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evals.text import table_beside, visible

if TYPE_CHECKING:
    from evals.estimators import Floats


@dataclass(frozen=True)
class Similarity:
    """How alike two texts are; ``function`` is `module:name` of what makes a (U, U) matrix of (Distinct, tokens).

    ``title`` stands in figures, ``meaning`` in docs/similarity.md. ``threshold`` is the default similarity from which
    two texts are the same solution, None where there is nothing to choose. ``has_tokens``: it depends on how a text is
    cut into tokens.
    """

    title: str
    function: str
    meaning: str
    threshold: float | None = None
    has_tokens: bool = False

    def __call__(self, texts: Sequence[str], *, tokens: str = "math") -> Floats:
        """The similarities of ``texts``, shape (N, N); UsageError for unknown ``tokens``."""
        from evals.similarity.measures import distinct, similarity_of_distinct

        unique, name = distinct(texts), next(name for name, one in SIMILARITIES.items() if one is self)
        return similarity_of_distinct(name, unique, tokens=tokens)[unique.which_N][:, unique.which_N]


_TABLES = table_beside(__file__, "similarities.toml")
SIMILARITIES: Mapping[str, Similarity] = {name: Similarity(**table) for name, table in _TABLES.items()}

# What docs/which-similarity.md recommends for texts, and for programs with its threshold.
DEFAULT = "rouge-l"
OF_CODE = ("tfidf", 0.8)
BY_MODEL = ("embed:", "judge:")  # how similarities begin that a model decides; see `evals.similarity.meaning`


def thresholds_text() -> str:
    """The default thresholds for a person: `0.9 (tfidf), 0.8 (others)`."""
    found = {name: one.threshold for name, one in SIMILARITIES.items() if one.threshold is not None}
    usual = Counter(found.values()).most_common(1)[0][0]
    unusual = [f"{threshold:g} ({name})" for name, threshold in found.items() if threshold != usual]
    return ", ".join([*unusual, f"{usual:g} (others)"])


def default_threshold(name: str | None) -> float | None:
    """The threshold of the similarity ``name`` where none is given; None where it has none."""
    known = SIMILARITIES.get(name or "")
    return known.threshold if known is not None else 0.5 if (name or "").startswith("judge:") else None


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


# UCC as the paper has it, in our reading. The paper names TF-IDF cosine similarity as an example of what it compares
# texts by, and states no threshold, no linkage and no tokens. These are scikit-learn's own tokens and a near-duplicate
# threshold: what the shortest program that does this would have. To be changed here when the authors say more.
PAPER = Setting("tfidf", 0.9, "components", "sklearn")


def setting_of(row: object) -> str:
    """What counted as the same solution, or the tau or bucket of difficulty, in the words of tables; often empty."""
    setting = Setting.of(row)
    if setting is not None:
        return visible(str(setting))
    tau, bucket = (getattr(row, name, None) for name in ("tau", "bucket"))
    return f"tau = {tau:g}" if isinstance(tau, float) else visible(bucket) if isinstance(bucket, str) else ""
