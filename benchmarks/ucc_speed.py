"""UCC's four similarities the usual way and ours, in one process, on texts that this script makes up.

Usual: rouge_score, Python sets and rapidfuzz for every pair, sklearn's TF-IDF, components of the thresholded matrix.
ROUGE-L takes minutes for one problem that way, so --rouge-pairs of its pairs are timed and the rest is extrapolated.
Every time is CPU time of this one process. Sizes of the clusters are compared wherever the usual way ran in full.

    python benchmarks/ucc_speed.py                     # three problems of 256 answers both ways, extrapolated to 1,547
    python benchmarks/ucc_speed.py --full              # ours on all 1,547, with peak memory
    python benchmarks/ucc_speed.py --full --threshold 0.9
"""

import argparse
import os
import random
import time
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core for both; read by numpy when it is imported

import numpy as np
from earlier import cpu_s, peak_mb
from rapidfuzz.distance import Levenshtein
from rouge_score.rouge_scorer import RougeScorer
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfVectorizer

from evals.clustering import cluster_sizes, partitions
from evals.similarity import default_threshold
from evals.similarity.measures import TOKENISERS, distinct

NUM_PROBLEMS = 1547
MEASURES = ("tfidf", "rouge-l", "jaccard", "edit")

TEXTS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("solutions.toml").read_text(encoding="utf-8"))


def solution(rng: random.Random, goal: str, num_steps: int) -> str:
    """A text shaped like a model's solution, about 90 characters a step."""
    parts = [rng.choice(TEXTS["openings"]).format(goal=goal)]
    for _ in range(num_steps):
        a, b = rng.randint(2, 99), rng.randint(2, 12)
        values = {"ab": a * b, "sum": a + b, "aa": a * a, "square": a * a + a * b, "rest": a * b - a}
        parts.append(rng.choice(TEXTS["steps"]).format(a=a, b=b, goal=goal, **values))
    return "\n\n".join([*parts, f"Thus, the {goal} is \\(\\boxed{{{rng.randint(1, 999)}}}\\)."])


def mutated(text: str, rate: float, rng: random.Random) -> str:
    """``text`` with a share ``rate`` of its words replaced, dropped or followed by another."""
    words = text.split(" ")
    out = []
    for word in words:
        chance = rng.random() / rate
        if chance >= 0.25:
            out.append(word if chance >= 0.75 else rng.choice(words))
        if 0.75 <= chance < 1:
            out.append(rng.choice(TEXTS["words"]))
    return " ".join(out)


def problem(kind: str, n: int, rng: random.Random) -> list[str]:
    """``n`` answers: a collapsed group (some 40 different ones), a mixed (some 130) or a diverse one (all)."""
    goal, num_steps = rng.choice(TEXTS["goals"]), rng.randint(6, 14)
    bases = [solution(rng, goal, num_steps) for _ in range(8)]
    if kind == "collapsed":
        variants = [bases[0], *(mutated(bases[0], rng.choice([0.005, 0.01, 0.03]), rng) for _ in range(50)), bases[1]]
        return rng.choices(variants, [1 / rank for rank in range(1, len(variants) + 1)], k=n)
    if kind == "mixed":
        families = [mutated(rng.choice(bases), 0.3, rng) for _ in range(40)]
        chosen = [families[min(int(rng.expovariate(0.12)), 39)] for _ in range(n)]
        return [text if rng.random() < 0.4 else mutated(text, 0.006, rng) for text in chosen]
    return [mutated(rng.choice(bases), 0.35, rng) for _ in range(n)]


def workload(num: int, n: int, seed: int) -> Iterator[list[str]]:
    """Six collapsed groups in ten, three mixed, one diverse."""
    rng = random.Random(seed)
    kinds = ["collapsed"] * 6 + ["mixed"] * 3 + ["diverse"]
    for number in range(num):
        yield problem(kinds[number * 7 % 10], n, rng)


def usual_matrix(measure: str, texts: list[str]) -> np.ndarray:
    if measure == "tfidf":
        vectors = TfidfVectorizer(tokenizer=TOKENISERS["math"], token_pattern=None).fit_transform(texts)
        return (vectors @ vectors.T).toarray()
    matrix = np.eye(len(texts))
    tokens = [set(TOKENISERS["math"](text)) for text in texts]
    for i, j in combinations(range(len(texts)), 2):
        if measure == "jaccard":
            matrix[i, j] = len(tokens[i] & tokens[j]) / len(tokens[i] | tokens[j])
        else:
            matrix[i, j] = Levenshtein.normalized_similarity(texts[i], texts[j])
    return np.maximum(matrix, matrix.T)


def usual_seconds(measure: str, texts: list[str], threshold: float, rouge_pairs: int, rng: random.Random) -> float:
    if measure == "rouge-l":
        scorer = RougeScorer(["rougeL"], use_stemmer=False)
        pairs = [rng.sample(range(len(texts)), 2) for _ in range(rouge_pairs)]
        spent, _ = cpu_s(lambda: [scorer.score(texts[i], texts[j]) for i, j in pairs])
        return spent / rouge_pairs * len(texts) * (len(texts) - 1) / 2

    def sizes() -> tuple[int, ...]:
        # A little below the threshold: sklearn's and rapidfuzz's rounding would miss exact ties.
        is_near = usual_matrix(measure, texts) >= threshold - 1e-12
        return cluster_sizes(connected_components(is_near)[1].tolist())

    spent, found = cpu_s(sizes)
    assert found == our_sizes(measure, texts, threshold), f"{measure}: the two ways disagree"
    return spent


def our_sizes(measure: str, texts: list[str], threshold: float) -> tuple[int, ...]:
    labels = partitions(distinct(texts), similarity=measure, thresholds=[threshold], linkage="components")[threshold]
    return cluster_sizes(labels)


def ours_together(texts: list[str], thresholds: dict[str, float], spent: dict[str, float]) -> None:
    """Adds up what each measure costs; words are shared, and count for the measure that needs them first."""
    start = time.process_time()
    unique = distinct(texts)
    for measure in MEASURES:
        partitions(unique, similarity=measure, thresholds=[thresholds[measure]], linkage="components")
        spent[measure] += time.process_time() - start
        start = time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=256, help="correct answers of a problem")
    parser.add_argument("--problems", type=int, default=10, help="problems measured without --full")
    parser.add_argument("--usual-problems", type=int, default=3, help="of these, how many also the usual way")
    parser.add_argument("--rouge-pairs", type=int, default=300, help="pairs timed with rouge_score, a problem")
    parser.add_argument("--threshold", type=float, help="one for all; default: .9 tfidf, .8 the others")
    parser.add_argument("--full", action="store_true", help=f"ours on all {NUM_PROBLEMS} problems")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    thresholds = {measure: options.threshold or default_threshold(measure) for measure in MEASURES}

    num = NUM_PROBLEMS if options.full else options.problems
    ours, usual = dict.fromkeys(MEASURES, 0.0), dict.fromkeys(MEASURES, 0.0)
    same = dict.fromkeys(MEASURES, 0.0)
    different, characters = [], []
    rng = random.Random(1)
    for number, texts in enumerate(workload(num, options.n, options.seed)):
        before = dict(ours)
        ours_together(texts, thresholds, ours)
        different.append(len(set(texts)))
        characters.append(sum(map(len, texts)) / len(texts))
        if number < options.usual_problems and not options.full:
            for measure in MEASURES:
                same[measure] += ours[measure] - before[measure]
                usual[measure] += usual_seconds(measure, texts, thresholds[measure], options.rouge_pairs, rng)
    scale = NUM_PROBLEMS / num
    how = "measured" if options.full else f"extrapolated from {num}"
    print(f"{NUM_PROBLEMS} problems x {options.n} correct answers ({how}), one core, CPU seconds")
    print(f"{np.mean(different):.0f} different answers a problem (root mean square "
          f"{np.sqrt(np.mean(np.square(different))):.0f}), {np.mean(characters):.0f} characters")  # fmt: skip
    for measure in MEASURES:
        line = f"{measure:8s} >= {thresholds[measure]:<5g} ours {scale * ours[measure]:8.1f} s"
        if usual[measure]:
            per_problem = usual[measure] / options.usual_problems
            line += f"   usual {per_problem * NUM_PROBLEMS:10.0f} s (from {options.usual_problems} problems)"
            line += f"   ratio on those {usual[measure] / same[measure]:7.0f}"
        print(line)
    print(f"all four         ours {scale * sum(ours.values()):8.1f} s", end="")
    if any(usual.values()):
        hours = sum(usual.values()) / options.usual_problems * NUM_PROBLEMS / 3600
        print(f"   usual {hours:8.1f} h   ratio on those {sum(usual.values()) / sum(same.values()):7.0f}", end="")
    print(f"\npeak memory {peak_mb():.0f} MB")


if __name__ == "__main__":
    main()
