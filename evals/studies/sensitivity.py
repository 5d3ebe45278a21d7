"""UCC as the paper has it, in our reading, and how much hangs on that reading.

The paper names TF-IDF cosine similarity as an example of what it compares texts by. It states no threshold, no linkage
and no tokens. `PAPER` is the one place to change when its authors say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from evals.metrics.counting import Counted, resolve_ks
from evals.metrics.passk_ucc import rows_of, ucc_estimates
from evals.results.document import Result, Row
from evals.results.paper import paper
from evals.samples.types import Samples
from evals.similarity.catalogue import Setting

# scikit-learn's own tokens and a near-duplicate threshold: what the shortest program that does this would have.
PAPER = Setting("tfidf", 0.9, "components", "sklearn")
PRESETS = {"paper": PAPER}
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
LINKAGES = ("components", "complete", "greedy")
TOKENS = ("sklearn", "math")


def sensitivity_rows(
    samples: Samples | Counted,
    *,
    ks: Sequence[int] | None = None,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """UCC at the largest of ``ks`` by TF-IDF at every threshold, linkage and kind of tokens; the averages come last.

    ``ks`` None means as in `ucc_result`. ``on_progress(done, total)`` counts problems, once for each kind of tokens.

    Raises:
        UsageError: a k is larger than some problem's n.
        DataError: a sample has no grade.
    """
    counted = Counted.of(samples)
    k = max(resolve_ks(counted.problems, ks))
    rows = []
    for round, tokens in enumerate(TOKENS):
        settings = [Setting(PAPER.similarity, t, linkage, tokens) for linkage, t in product(LINKAGES, THRESHOLDS)]

        def tell(done: int, total: int, round: int = round) -> None:
            if on_progress is not None:
                on_progress(round * total + done, len(TOKENS) * total)

        counts = counted.with_clusters(dict.fromkeys(counted.kinds, settings), jobs=jobs, on_progress=tell)
        estimates = [one for one in ucc_estimates(counts, [k]) if one.metric == "ucc@k"]
        rows += [row for estimate in estimates for row in rows_of(estimate, ci_seed=None)]
    return rows


def sampling_warnings(result: Result) -> list[str]:
    """What differs between the sampling of ``result`` and the paper's, where it is known."""
    stated = paper().sampling
    found = {name: getattr(result.sampling, name) for name in stated}
    words = [
        f"{name} {found[name]:g}, not {value:g}" for name, value in stated.items() if found[name] not in (None, value)
    ]
    return [f"these samples were drawn otherwise than the paper's: {'; '.join(words)}"] if words else []
