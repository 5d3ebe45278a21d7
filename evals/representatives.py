"""What the clusters of one problem look like: a text that stands for each of the largest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from evals.counting import Setting, labels_by_setting, solutions
from evals.errors import UsageError
from evals.judging import Judged
from evals.strict_json import shown


class Cluster(NamedTuple):
    """``text`` is the completion that occurs most often in the cluster (the first such), ``times`` how often."""

    size: int
    num_distinct: int
    times: int
    text: str


class Clusters(NamedTuple):
    """The clusters of one problem's correct completions under one setting, largest first."""

    benchmark: str
    id: str
    n: int
    correct: int
    setting: Setting
    clusters: list[Cluster]

    def document(self, *, largest: int) -> dict[str, Any]:
        """Plain JSON values; ``largest`` clusters are described, the sizes are all there."""
        return {
            "benchmark": self.benchmark,
            "id": self.id,
            "n": self.n,
            "correct": self.correct,
            **self.setting._asdict(),
            "sizes": [cluster.size for cluster in self.clusters],
            "clusters": [cluster._asdict() for cluster in self.clusters[:largest]],
        }


def clusters_of(problem: Judged, settings: Sequence[Setting]) -> list[Clusters]:
    """The problem's clusters under each setting."""
    unique = solutions(problem)
    described = []
    for setting, labels in labels_by_setting(unique, settings).items():
        members: dict[int, Counter[str]] = {}
        for label, place in zip(labels, unique.which_N.tolist(), strict=True):
            members.setdefault(label, Counter())[unique.texts[place]] += 1
        clusters = []
        for texts in members.values():
            text, times = texts.most_common(1)[0]
            clusters.append(Cluster(texts.total(), len(texts), times, text))
        clusters.sort(key=lambda cluster: -cluster.size)
        described.append(Clusters(problem.benchmark, problem.id, problem.n, problem.correct, setting, clusters))
    return described


def find_problem(problems: Sequence[Judged], id: str) -> list[Judged]:
    """The problems called ``id``, one for each benchmark that has it; raises UsageError naming similar ids."""
    found = [problem for problem in problems if problem.id == id]
    if not found:
        ids = list(dict.fromkeys(problem.id for problem in problems))
        close = get_close_matches(id, ids, n=3) or ids[:3]
        raise UsageError(f"no problem {shown(id)} in these samples; there are {len(ids)}, such as {shown(close)}")
    return found
