"""The problems of a report as JSON values: counts of all, and answers of as many as fit the page."""

# Axes: P problems of a benchmark under one sampling, S runs that were sampled on it.

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from evals.report import ProblemView, Report, setting_text
from evals.report.answers import LONGEST_NAME, Json, Text, capped
from evals.results.shown import in_order, title_of
from evals.text import visible

DEFAULT_PROBLEMS = 100
ANSWER_BYTES = 8 * 1024 * 1024


class _Sampled(NamedTuple):
    """One run's samples of one benchmark, by problem id."""

    run: int
    tag: str
    setting: str
    problems: dict[str, ProblemView]
    source: str


def problem_sets(report: Report, *, num_problems: int | None) -> tuple[list[Json], list[str]]:
    """One entry for each sampling and benchmark, and notes on what was left out.

    Answers are embedded for ``num_problems`` of each, or for up to `DEFAULT_PROBLEMS` until all answers together have
    `ANSWER_BYTES`. These problems are spread evenly from the hardest to the easiest.
    """
    groups: dict[tuple[str, str], list[_Sampled]] = {}
    for index, run in enumerate(report.runs):
        for samples in run.samples:
            for view in samples.views:
                by_id = {problem.counts.id: problem for problem in view.problems}
                setting = setting_text(view.setting)
                one = _Sampled(index, samples.tag, setting, by_id, view.source)
                groups.setdefault((samples.sampling, view.benchmark), []).append(one)
    sets, notes = [], []
    samplings = dict.fromkeys(sampling for sampling, _ in groups)
    keys = [(sampling, name) for sampling in samplings for name in in_order(name for _, name in groups)]
    for sampling, benchmark, members in ((*key, groups[key]) for key in keys if key in groups):
        budget = None if num_problems is not None else ANSWER_BYTES // len(groups)
        wanted = DEFAULT_PROBLEMS if num_problems is None else num_problems
        made, remarks = _problem_set(benchmark, members, wanted, budget)
        sets.append({"sampling": visible(sampling), "benchmark": visible(title_of(benchmark))[:LONGEST_NAME], **made})
        notes += [f"{visible(title_of(benchmark))[:LONGEST_NAME]}, {visible(sampling)}: {remark}" for remark in remarks]
    return sets, notes


def _problem_set(
    benchmark: str, members: Sequence[_Sampled], num_problems: int, budget: int | None
) -> tuple[Json, list[str]]:
    ids = list(dict.fromkeys(id for one in members for id in one.problems))
    texts: dict[Text, int] = {}  # each once: runs that learn the same task give the same answers
    answers: Json = {}
    spent = 0
    for position in spread([_difficulty(members, id) for id in ids])[:num_problems]:
        if budget is not None and spent > budget:
            break
        num_before = len(texts)
        entry = answers[str(position)] = _answers(members, ids[position], texts)
        spent += len(json.dumps([entry, list(texts)[num_before:]]))
    notes = []
    if len(answers) < len(ids):
        notes.append(
            f"answers of {len(answers)} of {len(ids)} problems are in this page, spread from the hardest to the "
            "easiest; `--problems N` changes how many"
        )
    runs = []
    for one in members:
        head = {"run": one.run, "tag": visible(one.tag), "setting": one.setting}
        counts = [one.problems[id].counts if id in one.problems else None for id in ids]
        columns = {
            "n": [known and known.n for known in counts],
            "c": [known and known.correct for known in counts],
            "clusters": [None if known is None or known.sizes is None else len(known.sizes) for known in counts],
        }
        runs.append({**head, **columns, **({"source": one.source} if one.source else {})})
    return {
        "ids": [list(capped(id, LONGEST_NAME)) for id in ids],
        "runs": runs,
        "answers": answers,
        "texts": [[text.text, text.num_cut] if text.num_cut else [text.text] for text in texts],
    }, notes


def spread(difficulty: Sequence[float]) -> list[int]:
    """Positions in such an order that the first of them, however many, are spread evenly over the values."""
    by_value = sorted(range(len(difficulty)), key=lambda position: (difficulty[position], position))
    num_bits = max(1, (len(by_value) - 1).bit_length())
    ranks = (int(f"{rank:0{num_bits}b}"[::-1], 2) for rank in range(2**num_bits))
    return [by_value[rank] for rank in ranks if rank < len(by_value)]


def _difficulty(members: Sequence[_Sampled], id: str) -> float:
    """Share of correct samples over all runs that have the problem."""
    counts = [one.problems[id].counts for one in members if id in one.problems]
    return sum(count.correct for count in counts) / sum(count.n for count in counts)


def _answers(members: Sequence[_Sampled], id: str, texts: dict[Text, int]) -> Json:
    """What each run answered to a problem, with the place of a text among ``texts`` in place of it."""
    found = [
        (at, answers) for at, one in enumerate(members) if id in one.problems and (answers := one.problems[id].answers)
    ]
    head = {name: next((one[name] for _, one in found if one[name] is not None), None) for name in ("prompt", "answer")}

    def placed(value: Any) -> Any:
        if isinstance(value, Text):
            return texts.setdefault(value, len(texts))  # the last of the page if it is new
        if isinstance(value, dict):
            return {key: placed(one) for key, one in value.items() if key not in head}
        return [placed(one) for one in value] if isinstance(value, list) else value

    placed_head = {name: placed(text) for name, text in head.items()}
    return {**placed_head, "runs": [{"member": at, **placed(answers)} for at, answers in found]}
