"""Numbers, comparisons and claims as Markdown, and claims for a program."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

from experiments.replication.cells import ENTROPY, PASS1, REALISED, UCC, K, measured
from experiments.replication.results import NUCLEUS, Group, Measure, Results, json_text, passed, unique
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

SIGNS = {Verdict.holds: "✓", Verdict.negligible: "≈", Verdict.does_not: "✗", Verdict.undecided: "?"}

_PERCENT = Unit(1, "", scale=100.0, is_signed=False)
_PLAIN = Unit(2, "", is_signed=False)
_ONE_DIGIT = Unit(1, "", is_signed=False)

# What is said of every setting, in this order.
Columns = Mapping[str, tuple[Measure, Unit]]
COLUMNS: Columns = {
    "realised KL, nats": (REALISED.measure, Unit(4, "", is_ratio=True)),
    "final entropy, nats": (ENTROPY.measure, _PLAIN),
    "Pass@1, top_p 0.7, %": (PASS1.measure, _PERCENT),
    f"Pass@{K}, top_p 0.7, %": (passed(K, NUCLEUS), _PERCENT),
    f"UCC@{K}, top_p 0.7": (unique(K, NUCLEUS), _ONE_DIGIT),
    f"UCC@{K}, top_p 1": (UCC.measure, _ONE_DIGIT),
}

_COUNTED = {  # of one claim, and of any other number of them
    Verdict.holds: ("holds", "hold"),
    Verdict.negligible: ("has no effect worth the name", "have no effect worth the name"),
    Verdict.does_not: ("does not hold", "do not hold"),
    Verdict.undecided: ("is undecided", "are undecided"),
}
_HEADINGS = {
    Verdict.holds: "Holds",
    Verdict.negligible: "No effect worth the name",
    Verdict.does_not: "Does not hold",
    Verdict.undecided: "Undecided",
}


def filled(template: Path, pictures: Mapping[str, str] = MappingProxyType({}), **parts: str | int | list[str]) -> str:
    """The text of ``template`` with a text or lines in place of each `$name`; a heading with nothing below is left out.

    A picture, which the template names like `![words](name.png)`, is shown with its words below it where ``pictures``
    says, or left out. Parts that are empty leave no empty lines.
    """

    def picture(found: re.Match[str]) -> str:
        words, name = found.groups()
        return f"![{words}]({pictures[name]})\n\n*{words}*" if name in pictures else ""

    texts = {name: "\n".join(part).strip("\n") if isinstance(part, list) else part for name, part in parts.items()}
    text = re.sub(r"!\[(.*)\]\(([\w-]*)\.png\)", picture, template.read_text(encoding="utf-8"))
    text = Template(text).substitute(texts, NOTE=NOTE, TIMES=TIMES)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return re.sub(r"^## .*\n\n(?=## )", "", text, flags=re.MULTILINE).rstrip() + "\n"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [_row(heads), f"|{'---|' * len(heads)}", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def claims_table(findings: Sequence[Finding]) -> list[str]:
    """Every claim with all of its comparisons, a line a claim."""
    rows = []
    for one in findings:
        measured = "<br>".join(map(_text, one.comparisons))
        verdict = str(one.verdict) if one.verdict is Verdict.undecided else f"**{one.verdict}**"
        rows.append([one.name, one.claim, "; ".join([one.where, *_margins(one)]), measured, verdict])
    return ["| | claim | where from | measured | verdict |", "|---|---|---|---|---|", *map(_row, rows)]


def _margins(finding: Finding) -> list[str]:
    """The margins of its comparisons, or how far their regions reach to the wrong side of 0."""
    found = []
    for one in finding.comparisons:
        low, high = one.region
        slack = max((-low if low > -math.inf else 0.0), high if low == -math.inf and high < math.inf else 0.0)
        if size := one.margin or (slack if one.unit.is_signed else 0.0):  # of a share it is the claim itself
            unit = one.unit
            shown = f"factor {math.exp(size):.3g}" if unit.is_ratio else f"{size * unit.scale:.3g} {unit.name}"
            found.append(shown)
    return [f"margin {' and '.join(dict.fromkeys(found))}"] if found else []


def _text(one: Comparison) -> str:
    if one.estimate is None:
        return f"? {one.what}: not run"
    return f"{SIGNS[one.verdict]} {one.what}: {number(one.estimate, one.unit)}{_sizes(one)}"


def _sizes(one: Comparison) -> str:
    estimate = one.estimate
    if estimate is None or estimate.is_exact:
        return ""
    parts = [f"{estimate.num_seeds} seed{'s' * (estimate.num_seeds > 1)}"] if estimate.num_seeds else []
    parts += [f"{estimate.num_problems} problems"] if estimate.num_problems > 1 else []
    needed = ""
    if one.verdict is Verdict.undecided and estimate.num_seeds > 1:
        seeds = seeds_to_decide(one)
        needed = f"; {f'about {seeds}' if seeds else f'more than {MOST_SEEDS}'} seeds would be needed"
    return f" ({' x '.join(parts)}{needed})"


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


def both_rules(findings: Sequence[Finding]) -> str:
    """An appendix: which verdicts and comparisons were others by the rule before `pooled_spread`."""
    rows = []
    for old, new in zip(with_common_spread(findings, pooled_if_many), findings, strict=True):
        if old.verdict is not new.verdict:
            rows.append([f"{new.name}: {new.claim}", old.verdict, new.verdict])
        for one, other in zip(old.comparisons, new.comparisons, strict=True):
            if one.verdict is not other.verdict:
                rows.append([f"{new.name}, {other.what}", one.verdict, other.verdict])
    changed = ["| | before | now |", "|---|---|---|", *map(_row, rows)] if rows else "None."
    return filled(Path(__file__).with_name("appendix.md"), changed=changed)


def settings_head(keys: Sequence[str], columns: Columns = COLUMNS) -> list[str]:
    """The two first lines of a table with a line for each setting, which ``keys`` tell apart."""
    return grid([*keys, "seeds", *columns], ())


def settings_row(keys: Sequence[str], group: Group, columns: Columns = COLUMNS) -> str:
    """The line of a setting, whose runs are ``group``."""
    cells = [number(measured(group, measure), unit) for measure, unit in columns.values()]
    return _row([*keys, str(len(group)), *cells])


def every_setting(*places: tuple[Results, Iterable[str]]) -> list[str]:
    """The table of all settings in some cells of each of several sweeps."""
    lines = settings_head(["cell", "setting"])
    for results, cell in ((results, cell) for results, cells in places for cell in cells):
        for settings, group in results.groups(cell):
            shown = ", ".join(f"{key.removeprefix('method.')} {value}" for key, value in settings.items())
            lines.append(settings_row([cell, shown], group))
    return lines


def summary(findings_of: Mapping[str, Sequence[Finding]]) -> list[str]:
    """The verdicts in a few lines, for each kind of claims under its heading."""
    lines = []
    for whose, everything in findings_of.items():
        some = [finding for finding in everything if any(one.estimate is not None for one in finding.comparisons)]
        counts = ", ".join(f"{count} {_COUNTED[verdict][count != 1]}" for verdict, count in tally(some).items())
        lines += [f"**{whose}: {counts}.**", ""]
        for verdict in Verdict:
            named = [f"{finding.claim} ({finding.name})" for finding in some if finding.verdict is verdict]
            if named:
                lines.append(f"- {SIGNS[verdict]} *{_HEADINGS[verdict]}:* {'; '.join(named)}.")
        waiting = [finding.name for finding in everything if finding not in some]
        lines += [f"- *Not run yet:* {', '.join(waiting)}."] if waiting else []
        lines.append("")
    comparisons = [one for some in findings_of.values() for finding in some for one in finding.comparisons]
    run = [one for one in comparisons if one.estimate is not None]
    open_ones = [one for one in run if one.verdict is Verdict.undecided]
    hopeless = sum(
        one.estimate is not None and one.estimate.num_seeds > 1 and not seeds_to_decide(one) for one in open_ones
    )
    not_run = f", and {len(comparisons) - len(run)} were not run" if len(run) < len(comparisons) else ""
    lines += [
        f"Of {len(comparisons)} comparisons {len(run) - len(open_ones)} are decided, {len(open_ones)} are "
        f"not{not_run}. For {hopeless} of the undecided ones more than {MOST_SEEDS} seeds would be needed if the truth "
        "is what was measured: seeds lie too far apart, or the number is too close to where the verdict changes.",
        "",
    ]
    return lines


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
