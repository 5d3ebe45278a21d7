"""Numbers, comparisons and claims as Markdown and CSV, and claims for a program."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

from experiments.replication.cells import ENTROPY, PASS1, REALISED, UCC, K, measured
from experiments.replication.results import NUCLEUS, Group, Measure, json_text, mean_of, passed, unique
from experiments.replication.rules import (
    MOST_SEEDS,
    Comparison,
    Estimate,
    Finding,
    Unit,
    Verdict,
    pooled_if_many,
    seeds_to_decide,
    tally,
    with_common_spread,
)

NOTE = "<!-- Generated from experiments/results/; `make pages` writes it anew. -->"
TIMES = "<!-- times -->"  # the one line that a repetition on another machine changes although nothing else does
FEW_SEEDS = 5  # with fewer, the value of each is listed

SIGNS = {Verdict.holds: "✓", Verdict.negligible: "≈", Verdict.does_not: "✗", Verdict.undecided: "?"}

_PERCENT = Unit(1, "", scale=100.0, is_signed=False)
_PLAIN = Unit(2, "", is_signed=False)
_ONE_DIGIT = Unit(1, "", is_signed=False)

# What is said of every setting, in this order.
Columns = Mapping[str, tuple[Measure, Unit]]
COLUMNS: Columns = {
    "realised KL, nats": (REALISED.measure, Unit(4, "", is_ratio=True)),
    "final entropy, nats": (ENTROPY.measure, _PLAIN),
    "accuracy in training, %": (mean_of("accuracy/mean", 1.0), _PERCENT),
    "share of the KL without success, %": (mean_of("dual/share_without_success", 1.0), _PERCENT),
    "Pass@1 (top_p 0.7), %": (PASS1.measure, _PERCENT),
    f"Pass@{K} (top_p 0.7), %": (passed(K, NUCLEUS), _PERCENT),
    f"UCC@{K} (top_p 0.7)": (unique(K, NUCLEUS), _ONE_DIGIT),
    f"UCC@{K} (top_p 1)": (UCC.measure, _ONE_DIGIT),
}

_COUNTED = {  # of one claim, and of any other number of them
    Verdict.holds: ("holds", "hold"),
    Verdict.negligible: ("is negligible", "are negligible"),
    Verdict.does_not: ("does not hold", "do not hold"),
    Verdict.undecided: ("is undecided", "are undecided"),
}
_WORDS = {
    Verdict.holds: "**holds**",
    Verdict.negligible: "**negligible**",
    Verdict.does_not: "**does not hold**",
    Verdict.undecided: "undecided",
}


def filled(
    template: Path,
    pictures: Mapping[str, str] = MappingProxyType({}),
    findings: Sequence[Finding] = (),
    **parts: str | int | list[str],
) -> str:
    """The text of ``template`` with a text or lines in place of each `$name`; a heading with nothing below is left out.

    A picture, which the template names like `![words](name.png)`, is shown with its words below it where ``pictures``
    says, or left out. Parts that are empty leave no empty lines. A line that begins with `<a1 a2 holds, b1 does not>`
    stays, without that, if these are the verdicts of ``findings``; `$a1_2` is the second number of a1.
    """
    verdict_of = {one.name: one.verdict for one in findings}

    def picture(found: re.Match[str]) -> str:
        words, name = found.groups()
        return f"![{name}]({pictures[name]})\n\n*{words}*" if name in pictures else ""

    def stands(condition: str) -> bool:
        parts = [(part, verdict) for part in condition.split(", ") for verdict in Verdict if part.endswith(verdict)]
        return all(verdict_of.get(name) is it for part, it in parts for name in part.removesuffix(it).split())

    numbers: dict[str, str | int] = {
        f"{one.name.replace('.', '_')}_{at}": number(each.estimate, each.unit)
        for one in findings
        for at, each in enumerate(one.comparisons, 1)
    }
    texts = {name: "\n".join(part).strip("\n") if isinstance(part, list) else part for name, part in parts.items()}
    text = re.sub(r"!\[(.*)\]\(([\w-]*)\.png\)", picture, template.read_text(encoding="utf-8"))
    text = re.sub(r"^<(\w[^>]*)> (.*\n)", lambda line: line[2] if stands(line[1]) else "", text, flags=re.MULTILINE)
    text = Template(text).substitute(numbers | texts, NOTE=NOTE, TIMES=TIMES)
    text = re.sub(r"\n{3,}", "\n\n", text)
    text = text.replace("λ*", r"λ\*")  # a star that begins or ends no emphasis
    return re.sub(r"^## .*\n\n(?=## )", "", text, flags=re.MULTILINE).rstrip() + "\n"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [_row(heads), f"|{'---|' * len(heads)}", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as the text of a CSV file, with ASCII minus signs."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue().replace("−", "-")


def claims_table(findings: Sequence[Finding], *, with_number: bool = True) -> list[str]:
    """A line for each claim, with the comparison that its verdict hangs on."""
    measured = ["measured"] * with_number
    rows = []
    for one in findings:
        holding = sum(each.verdict is Verdict.holds for each in one.comparisons)
        verdict = f"{_WORDS[one.verdict]} ({holding}/{len(one.comparisons)})"
        rows.append([one.name, one.claim, *[_text(telling(one)) for _ in measured], verdict])
    return grid(["", "claim", *measured, "verdict"], rows)


def telling(finding: Finding) -> Comparison | None:
    """The first comparison that keeps a claim from holding, one that does not hold before an undecided one.

    Of a claim that holds it is the first of all.
    """
    against = [one for one in finding.comparisons if one.verdict is not Verdict.holds]
    found = sorted(against, key=lambda one: one.verdict is not Verdict.does_not) or list(finding.comparisons)
    return found[0] if found else None


def _text(one: Comparison | None) -> str:
    if one is None:
        return ""
    if one.estimate is None:
        return f"{one.what}: not run"
    return f"{one.what}: {number(one.estimate, one.unit)}{_sizes(one)}"


def _sizes(one: Comparison) -> str:
    estimate = one.estimate
    if estimate is None or estimate.is_exact:
        return ""
    if not estimate.num_seeds:
        return f" ({estimate.num_problems} problems)"
    parts = [by_seed(estimate, one.unit) or f"{estimate.num_seeds} seed{'s' * (estimate.num_seeds > 1)}"]
    if one.verdict is Verdict.undecided and estimate.num_seeds > 1:
        parts.append(f"about {seeds} needed" if (seeds := seeds_to_decide(one)) else f"more than {MOST_SEEDS} needed")
    return f" ({'; '.join(parts)})"


def by_seed(estimate: Estimate | None, unit: Unit) -> str:
    """The value of each seed where there are few, more than one."""
    if estimate is None or not 1 < estimate.num_seeds < FEW_SEEDS:
        return ""
    return ", ".join(map(unit.text, estimate.by_seed))


def number(estimate: Estimate | None, unit: Unit) -> str:
    """The number with its interval; a dash for none."""
    if estimate is None:
        return "–"
    name = f" {unit.name}" if unit.name else ""
    if estimate.is_exact:
        return f"{unit.text(estimate.mean)}{name} (exact)"
    if estimate.low is None or estimate.high is None:
        return f"{unit.text(estimate.mean)}{name}"
    return f"{unit.text(estimate.mean)} [{unit.text(estimate.low)}, {unit.text(estimate.high)}]{name}"


def comparisons_csv(findings: Sequence[Finding]) -> str:
    """Every comparison of every claim, a line each, with its verdict by the rule before `pooled_spread` beside it."""
    heads = ["claim", "text", "where from", "verdict of the claim", "comparison", "verdict", "mean", "low", "high"]
    heads += ["unit", "margin", "seeds", "problems", "by seed", "seeds needed"]
    rows = []
    for old, new in zip(with_common_spread(findings, pooled_if_many), findings, strict=True):
        for before, one in zip(old.comparisons, new.comparisons, strict=True):
            claim = [new.name, new.claim, new.where, new.verdict, one.what, one.verdict]
            sizes = [""] * 4
            if (found := one.estimate) is not None and not found.is_exact:
                seeds = seeds_to_decide(one) or f"more than {MOST_SEEDS}" if found.num_seeds > 1 else ""
                values = "; ".join(map(one.unit.text, found.by_seed))
                needed = str(seeds) if one.verdict is Verdict.undecided else ""
                sizes = [str(found.num_seeds or ""), str(found.num_problems), values, needed]
            row = [*claim, *_ends(found, one.unit), one.unit.name, _margin(one), *sizes]
            rows.append([*row, old.verdict, before.verdict])
    return csv_text([*heads, "verdict of the claim before November 2026", "verdict before November 2026"], rows)


def _ends(found: Estimate | None, unit: Unit) -> list[str]:
    """The mean and both ends, as far as they are known."""
    known = (None, None, None) if found is None else (found.mean, found.low, found.high)
    return ["" if one is None else unit.text(one) for one in known]


def _margin(one: Comparison) -> str:
    """The margin of a comparison, or how far its region reaches to the wrong side of 0."""
    low, high = one.region
    slack = max((-low if low > -math.inf else 0.0), high if low == -math.inf and high < math.inf else 0.0)
    size = one.margin or (slack if one.unit.is_signed else 0.0)  # of a share it is the claim itself
    return "" if not size else f"{math.exp(size) if one.unit.is_ratio else size * one.unit.scale:.3g}"


def arms_csv(keys: Sequence[str], arms: Iterable[tuple[Sequence[str], Group]]) -> str:
    """A line for each setting, which ``keys`` tell apart: means with intervals, and the value of each seed."""
    heads = [f"{name}{part}" for name in COLUMNS for part in ("", ": low", ": high", ": by seed")]
    rows = []
    for names, group in arms:
        cells = []
        for measure, unit in COLUMNS.values():
            found = measured(group, measure)
            cells += [*_ends(found, unit), "; ".join(map(unit.text, found.by_seed)) if found else ""]
        rows.append([*names, str(len(group)), *cells])
    return csv_text([*keys, "seeds", *heads], rows)


def counted(findings: Sequence[Finding]) -> str:
    """How many hold, do not, and so on, without what counts 0."""
    found = [f"{count} {_COUNTED[verdict][count != 1]}" for verdict, count in tally(findings).items() if count]
    return " and ".join(filter(None, [", ".join(found[:-1]), *found[-1:]]))


def summary(findings_of: Mapping[str, Sequence[Finding]]) -> list[str]:
    """The verdicts in a few lines, for each kind of claims."""
    lines = []
    for whose, everything in findings_of.items():
        some = [finding for finding in everything if any(one.estimate is not None for one in finding.comparisons)]
        waiting = [finding.name for finding in everything if finding not in some]
        not_run = f" Not run: {', '.join(waiting)}." if waiting else ""
        lines.append(f"- {whose}: {counted(some) or 'none was run'}.{not_run}")
    comparisons = [one for some in findings_of.values() for finding in some for one in finding.comparisons]
    run = [one for one in comparisons if one.estimate is not None]
    open_ones = [one for one in run if one.verdict is Verdict.undecided]
    hopeless = sum(
        one.estimate is not None and one.estimate.num_seeds > 1 and not seeds_to_decide(one) for one in open_ones
    )
    not_run = f"; {len(comparisons) - len(run)} were not run" if len(run) < len(comparisons) else ""
    return [
        *lines,
        f"- {len(run) - len(open_ones)} of {len(comparisons)} comparisons are decided{not_run}. "
        f"{hopeless} of the undecided ones would need more than {MOST_SEEDS} seeds.",
    ]


def document(findings: Sequence[Finding], **about: Any) -> str:
    """The claims for a program, after what ``about`` says: every comparison with its estimate, region and verdict."""
    return json_text({**about, "claims": [_entry(finding) for finding in findings]})


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "claim": finding.claim,
        "where": finding.where,
        "is_ours": finding.is_ours,
        "verdict": finding.verdict,
        "comparisons": [_comparison(one) for one in finding.comparisons],
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    estimate = None if one.estimate is None else asdict(one.estimate)
    # Infinite ends are null: JSON has none.
    region = [None if abs(end) == float("inf") else end for end in one.region]
    scale = "log" if one.unit.is_ratio else "linear"
    about = {"what": one.what, "verdict": one.verdict, "region": region, "margin": one.margin, "scale": scale}
    return {**about, "estimate": estimate}
