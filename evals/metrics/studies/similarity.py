"""How alike the correct answers to a problem are: the distribution of pairwise similarity in each benchmark.

A pair is two correct samples of one problem; samples with the same text make pairs of similarity 1. A problem with
256 correct samples has 32,640 pairs. If there are more than ``max_pairs``, that many are drawn without replacement,
by a generator that depends on the seed and the problem only. Problems are pooled pair by pair.

A heatmap has the similarities of the answers to one problem, with the answers of a cluster side by side.
"""

# Axes: M pairs, U distinct texts, C correct answers, W wrong ones, A answers shown (the correct ones, or all).

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import LCSseq, Levenshtein
from rapidfuzz.process import cpdist

from evals.benchmarks.catalogue import kind_of
from evals.clustering import cluster_sizes
from evals.errors import DataError, UsageError
from evals.estimators import Floats
from evals.files.frames import grouped
from evals.files.strict_json import shown
from evals.grading import OnProgress
from evals.metrics.counting import BY_DEFAULT, Clustering, labels_by_setting, solutions, tokens_for
from evals.results.document import UNKNOWN, About, Result, Row
from evals.samples.about import head_of, warnings_of
from evals.samples.types import GradedProblem, Samples
from evals.similarity import BY_MODEL, PAPER, SIMILARITIES, Setting
from evals.similarity.measures import Distinct, Integers, by_model, check_similarity, similarity_of_distinct

METRIC = "similarity"
NUM_BINS = 50
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DEFAULT_MAX_PAIRS = 1000


def similarity_result(
    samples: Samples,
    *,
    similarities: Sequence[str] | None = None,
    tokens: str | None = None,
    max_pairs: int = DEFAULT_MAX_PAIRS,
    seed: int = 0,
    on_progress: OnProgress = None,
    about: About = UNKNOWN,
) -> Result:
    """A row for each benchmark and similarity: ``value`` is the median, and its extra keys hold the distribution.

    ``similarities`` None means all that come with quatro but exact.
    They are ``mean``, ``quantiles`` (by probability), ``histogram`` (pairs in 50 equal bins of [0, 1], the last one
    closed), ``equal_share`` (pairs with similarity 1), ``rao`` (Rao's quadratic entropy, the mean over problems of
    1 - similarity; Rao 1982, doi 10.1016/0040-5809(82)90004-1), ``num_pairs`` of ``num_pairs_total`` and ``max_pairs``
    of a problem. `num_problems` counts those with two correct samples; a benchmark without any has no row but a
    warning. ``on_progress(done, total)`` counts problems.

    Raises:
        UsageError: an unknown name.
        DataError: no problem at all has two correct samples, or a sample has no grade.
    """
    similarities = check_study(similarities, tokens)
    graded = samples.graded()
    rows: list[Row] = []
    warnings = warnings_of(samples.warnings, graded)
    done, total = 0, sum(problem.correct > 1 for problem in graded)
    for benchmark, problems in grouped(graded, lambda problem: problem.benchmark).items():
        compared = [problem for problem in problems if problem.correct > 1]
        if not compared:
            warnings.append(f"{shown(benchmark)}: no problem has two correct samples, so there is no pair to compare")
            continue
        own_tokens = tokens_for(problems[0].kind, tokens)
        values: dict[str, list[Floats]] = {name: [] for name in similarities}
        for problem in compared:
            # A random stream for each problem, which depends on its benchmark and id only.
            stream = zlib.crc32(f"{benchmark}\0{problem.id}".encode("utf-8", "surrogatepass"))
            i_M, j_M = chosen_pairs(problem.correct, max_pairs, np.random.default_rng([seed, stream]))
            unique = solutions(problem, own_tokens)
            for name, parts in values.items():
                parts.append(pair_similarities(name, unique, i_M, j_M, tokens=own_tokens))
            done += 1
            if on_progress is not None:
                on_progress(done, total)
        how = {"tokens": own_tokens, "max_pairs": max_pairs, "pairs_seed": seed}
        rows += [_row(compared, name, parts, how) for name, parts in values.items()]
    if not rows:
        raise DataError("no problem has two correct samples: nothing to compare; draw more with `quatro sample`")
    return Result(metric=METRIC, rows=rows, warnings=warnings, **head_of(about, graded))


def check_study(similarities: Sequence[str] | None, tokens: str | None) -> Sequence[str]:
    """``similarities``, or all that come with quatro but exact; raises UsageError for a name that is not known."""
    tokens_for(kind_of(""), tokens)
    names = similarities or [name for name in SIMILARITIES if name != "exact"]
    for name in names:
        check_similarity(name)
    return [by_model(name).name if name.startswith(BY_MODEL) else name for name in names]


def chosen_pairs(num_texts: int, max_pairs: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """The pairs i < j of ``num_texts`` texts in order, at most ``max_pairs``, drawn without replacement if need be."""
    i_M, j_M = np.triu_indices(num_texts, 1)
    if len(i_M) > max_pairs:
        place_M = np.sort(rng.choice(len(i_M), size=max_pairs, replace=False, shuffle=False))
        i_M, j_M = i_M[place_M], j_M[place_M]
    return i_M, j_M


def pair_similarities(name: str, unique: Distinct, i_M: Integers, j_M: Integers, *, tokens: str = "math") -> Floats:
    """The similarity ``name`` of the texts i and j of each pair; the values that `SIMILARITIES` have there."""
    low_M, high_M = np.sort([unique.which_N[i_M], unique.which_N[j_M]], axis=0)
    # Collapsed groups hold the same pair of texts over and over.
    code_C, which_M = np.unique(low_M * len(unique.texts) + high_M, return_inverse=True)
    low_C, high_C = np.divmod(code_C, max(len(unique.texts), 1))
    if name == "edit":
        distance_C = cpdist(*_sides(unique.texts, low_C, high_C), scorer=Levenshtein.distance, dtype=np.int32)
        longest_C = np.maximum(*(_lengths(unique.texts, place_C) for place_C in (low_C, high_C)))
        value_C = (longest_C - distance_C) / np.maximum(longest_C, 1.0)
    elif name == "rouge-l":
        common_C = cpdist(*_sides(unique.rouge_strings, low_C, high_C), scorer=LCSseq.similarity, dtype=np.int32)
        total_C = _lengths(unique.rouge_strings, low_C) + _lengths(unique.rouge_strings, high_C)
        value_C = 2 * common_C / np.maximum(total_C, 1.0)
    else:  # one product gives all pairs at once
        value_C = similarity_of_distinct(name, unique, tokens=tokens)[low_C, high_C]
    value_C = np.where(low_C == high_C, 1.0, value_C)
    return value_C[which_M]


def _sides(texts: Sequence[str], low_C: Integers, high_C: Integers) -> tuple[list[str], list[str]]:
    return [texts[place] for place in low_C.tolist()], [texts[place] for place in high_C.tolist()]


def _lengths(texts: Sequence[str], place_C: Integers) -> Floats:
    return np.array([len(texts[place]) for place in place_C.tolist()], dtype=np.float64)


def _row(problems: Sequence[GradedProblem], name: str, parts: Sequence[Floats], how: Mapping[str, Any]) -> Row:
    """The distribution of one similarity over the pairs of a benchmark; ``parts`` are those of each problem."""
    value_M = np.concatenate(parts)
    # A tenth of a millionth: 0.58 * 50 is a little less than 29 in binary, and belongs to the bin that starts at 0.58.
    bin_M = np.minimum((value_M * NUM_BINS + 1e-7).astype(np.int64), NUM_BINS - 1)
    row: dict[str, Any] = {
        "metric": METRIC,
        "benchmark": problems[0].benchmark,
        "k": None,
        "value": float(np.median(value_M)),
        "num_problems": len(problems),
        "n": min(problem.n for problem in problems),
        "similarity": name,
        "mean": float(value_M.mean()),
        "rao": 1 - float(np.mean([part_M.mean() for part_M in parts])),
        "quantiles": dict(zip(map(str, QUANTILES), np.quantile(value_M, QUANTILES).tolist(), strict=True)),
        "histogram": np.bincount(bin_M, minlength=NUM_BINS).tolist(),
        "equal_share": float((value_M == 1.0).mean()),
        "num_pairs": len(value_M),
        "num_pairs_total": sum(problem.correct * (problem.correct - 1) // 2 for problem in problems),
    }
    return Row(**{**row, **how})


class Heatmap(NamedTuple):
    """``similarity_AA`` of the answers shown, and the ``sizes`` of the clusters of correct ones, largest first.

    The first ``num_correct`` answers are correct, cluster after cluster; behind them the wrong ones, if they are shown.
    ``order_A`` says which answer stands where: its place among the answers shown, by sample index.
    """

    benchmark: str
    id: str
    n: int
    setting: Setting
    similarity_AA: Floats
    order_A: Integers
    sizes: tuple[int, ...]
    num_correct: int


def heatmap_of(samples: Samples, id: str, clustering: Clustering = BY_DEFAULT, *, with_wrong: bool = False) -> Heatmap:
    """The heatmap of the problem called ``id``, of its correct answers or ``with_wrong`` of all, by tfidf if not said.

    Clusters are those that UCC counts, of correct answers alone. The wrong ones are in order of clusters of their own.

    Raises:
        UsageError: no problem has that id, or several benchmarks have one; or the first of ``clustering`` is unknown.
        DataError: there are no two answers to show, or a sample has no grade.
    """
    samples = samples.of_problem(id)
    benchmarks = list(dict.fromkeys(row.benchmark for row in samples.rows))
    if len(benchmarks) > 1:
        raise UsageError(f"{shown(benchmarks)} have a problem {shown(id)}; choose one with -b")
    problem = samples.graded()[0]
    clustering = clustering._replace(similarities=clustering.similarities or [PAPER.similarity])
    setting = clustering.settings(problem.benchmark, problem.kind)[0]
    if (problem.n if with_wrong else problem.correct) < 2:
        raise DataError(
            f"{shown(id)} of {problem.benchmark} has {problem.correct} correct of {problem.n} samples; a heatmap "
            f"compares at least two{'' if with_wrong else ' correct ones (--all: any)'}: choose another --id"
        )
    rows = [row for row in samples.problems()[0].samples if row.correct or with_wrong]
    wrong = [row.completion for row in rows if not row.correct]
    order_C, sizes = _clustered(problem, setting)
    order_W, _ = _clustered(problem._replace(completions=wrong), setting)
    place_C, place_W = (np.flatnonzero([bool(row.correct) is kind for row in rows]) for kind in (True, False))
    order_A = np.concatenate([place_C[order_C], place_W[order_W]])
    unique = solutions(problem._replace(completions=[row.completion for row in rows]), setting.tokens)
    place_A = unique.which_N[order_A]
    similarity_UU = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)
    similarity_AA = similarity_UU[np.ix_(place_A, place_A)]
    return Heatmap(
        problem.benchmark, problem.id, problem.n, setting, similarity_AA, order_A, sizes, len(problem.completions)
    )


def _clustered(problem: GradedProblem, setting: Setting) -> tuple[Integers, tuple[int, ...]]:
    """The order of ``problem``'s completions by cluster, and the sizes of the clusters."""
    if not problem.completions:
        return np.arange(0), ()
    unique = solutions(problem, setting.tokens)
    similarity_UU = similarity_of_distinct(setting.similarity, unique, tokens=setting.tokens)
    labels = labels_by_setting(unique, [setting])[setting]
    # The largest cluster first, and inside a cluster the order of the leaves of average linkage.
    label_C, leaf_U = np.asarray(labels), np.argsort(_leaves(similarity_UU))
    order_C = np.lexsort((np.arange(len(labels)), leaf_U[unique.which_N], label_C, -np.bincount(label_C)[label_C]))
    return order_C, cluster_sizes(labels)


def _leaves(similarity_UU: Floats) -> Integers:
    """Distinct texts in an order in which similar ones are neighbours."""
    if len(similarity_UU) < 3:
        return np.arange(len(similarity_UU))
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    distance_UU = 1.0 - similarity_UU
    np.fill_diagonal(distance_UU, 0.0)
    tree = hierarchy.linkage(squareform(distance_UU, checks=False), method="average")
    return hierarchy.leaves_list(tree).astype(np.int64)
