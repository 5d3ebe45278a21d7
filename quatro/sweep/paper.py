"""The paper's tables and figures from one sweep, and a page that says what of them is missing: `quatro paper`.

    <out>/ README.md  tables/<name>.{tex,csv,md}  figures/<name>.{pdf,png}

Imports no torch. The same sweep gives the same bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import DataError, QuatroError
from evals.figures.bars import flips_figure, temperature_figure
from evals.figures.curves import curve_panels, curves_figure
from evals.figures.paper import delta_lambda_figure, entropy_figure, limitation_figure, stability_figure
from evals.figures.run_settings import Drawn, RunSetting
from evals.figures.sheet import Sheet, save_figure
from evals.figures.similarity import heatmap_figure, similarity_figure
from evals.files.whole import write_text
from evals.metrics.studies.similarity import heatmap_of, similarity_result
from evals.results.document import Row
from evals.results.entries import ENTROPY, Entry, own_entries, published_entries
from evals.results.paper import CODE_BENCHMARKS, paper
from evals.results.reading import Sources, read_sources
from evals.samples.graded import read_graded
from evals.tables.formats import to_csv, to_markdown
from evals.tables.latex import to_latex
from evals.tables.layouts import PAPER_TABLES, Layout, build_tables
from evals.tables.parts import Style, Table
from evals.text import visible
from quatro.runs.views.series import read_settings
from quatro.sample.folder import Tag
from quatro.sweep.results import (
    chosen_runs,
    chosen_tag,
    fitting_tags,
    flips_by_label,
    labelled_results,
    temperatures_by_label,
)

NOTES = "notes.md"  # in the sweep's folder: what its page says first
MAIN_CELL = "main"  # of a sweep of several cells, the one that tables are about
SIMILARITY_BENCHMARKS = ("math500", "amc23", "aime24")  # of the paper's figure
MOST_BARS = 12  # labels of a figure of bars (evals/figures/method_looks.py)
MOST_HISTOGRAMS = 4
MAX_PAIRS = 200  # of answers compared of each problem

Tell = Callable[[str], None]  # what is made next


class Kind(NamedTuple):
    """A table or figure: its file name without ending, its title, the paper's label for it, and what makes it."""

    name: str
    title: str
    label: str
    make: Callable[[SweepSources], list[Table] | Drawn]

    @property
    def heading(self) -> str:
        """The title, and the label of those that the paper has."""
        return f"{self.title} ({self.label})" if self.label else self.title


class SweepSources:
    """The sweep as tables and figures want it; each form is read once."""

    def __init__(
        self, folder: Path, top_p: float | None, temperature: float | None, cell: str | None, with_paper: bool
    ) -> None:
        everything = chosen_runs(folder, None)
        if cell is None and any(run.cell == MAIN_CELL for run in everything):
            cell = MAIN_CELL
        self.folder, self.cell, self.with_paper = folder, cell, with_paper
        self.runs, self.everything = chosen_runs(folder, cell), everything
        self.tag = chosen_tag(folder, self.runs, top_p, temperature)
        self.temperature = temperature
        self.warnings: list[str] = []

    @cached_property
    def models(self) -> list[str]:
        return list(dict.fromkeys(run.config.model for run in self.runs))

    @cached_property
    def sources(self) -> Sources:
        how: dict[str, Any] = {"top_p": self.tag.top_p, "temperature": self.tag.temperature, "cell": self.cell}
        return read_sources([self.folder], expand=lambda folder: labelled_results(folder, **how))

    def entries(self, metric: str) -> list[Entry]:
        entries, warnings = own_entries(self.sources, metric)
        self.warnings += warnings
        return entries

    @cached_property
    def settings(self) -> list[RunSetting]:
        """Of all cells: figures of stale and of large updates take theirs from others than tables do."""
        found = read_settings([run.folder for run in self.everything])
        self.warnings += found.warnings
        return found.settings

    def samples(self, benchmarks: Sequence[str]) -> dict[str, list[Path]]:
        """Samples files by label: of the first seed of each setting, and of the base they began from."""
        found: dict[str, list[Path]] = {}
        for run in self.runs:
            for name, place in (("Base", run.base), (run.label, run.folder)):
                files = [] if place is None else [self.tag.folder(place) / f"{one}.jsonl" for one in benchmarks]
                if name not in found and (there := [file for file in files if file.is_file()]):
                    found[name] = there
        if not found:
            raise DataError(f"no samples of {', '.join(benchmarks)}; sample with `quatro sweep ... --eval`")
        return found


def _of_layout(layout: Layout, metric: str, found: SweepSources) -> list[Table]:
    published = published_entries(metric, tables=PAPER_TABLES[layout]) if found.with_paper else []
    return build_tables(layout, found.entries(metric), published, metric=metric, style=Style())


def _code(found: SweepSources) -> list[Table]:
    if not any(name in CODE_BENCHMARKS for name in found.sources.benchmarks):
        raise DataError("no benchmark of code was measured; `quatro sweep ... --eval humaneval,mbpp` does")
    return _of_layout("code", "pass@k", found)


_TABLES = (
    Kind("average-passk", "Average Pass@k", "tab:avg_passk", partial(_of_layout, "average", "pass@k")),
    Kind("passk", "Pass@k of each benchmark", "tab:appendix_passk_all", partial(_of_layout, "benchmarks", "pass@k")),
    Kind("ucc", "UCC@k", "tab:ucc_all", partial(_of_layout, "ucc", "ucc@k")),
    Kind("entropy", "Final policy entropy", "tab:final_entropy", partial(_of_layout, "entropy", ENTROPY)),
    Kind("code", "Code generation", "tab:code_generation", _code),
)


def _spelled(text: str) -> str:
    """QUATRO as the tables and the paper call it, whether ``text`` is about samples or about training."""
    return re.sub(r"(?:Ours delta=|QUATRO δ )(?=[0-9])", "Ours δ=", text)


_SHEET = Sheet(spell=_spelled)


def _curves(metric: str) -> Callable[[SweepSources], Drawn]:
    return lambda found: Drawn(curves_figure(curve_panels(found.entries(metric), metric), sheet=_SHEET), [])


def _of_settings(figure_of: Callable[..., Drawn]) -> Callable[[SweepSources], Drawn]:
    return lambda found: figure_of(found.settings, sheet=_SHEET)


def _flips(found: SweepSources) -> Drawn:
    rows, notes = _few(flips_by_label(found.runs, found.tag))
    return Drawn(flips_figure(rows, sheet=_SHEET), notes)


def _temperature(found: SweepSources) -> Drawn:
    tags = fitting_tags(found.folder, found.runs, found.tag.top_p, found.temperature)
    if len(tags) < 2:
        raise DataError("the samples are of one temperature; measure with `--eval-temperature 0.6,1`")
    rows, notes = _few(temperatures_by_label(found.runs, tags))
    return Drawn(temperature_figure(rows, sheet=_SHEET), notes)


def _few(rows: dict[str, list[Row]]) -> tuple[dict[str, list[Row]], list[str]]:
    """Rows of as many labels as bars can show: GSPO and QUATRO, as in the paper, or QUATRO's smallest radius."""
    if len(rows) <= MOST_BARS:
        return rows, []
    ours = [label for label in rows if label.startswith("Ours")]
    smallest = ours[-1].split(",")[0] if ours else ""
    for kept in (ours, [label for label in ours if label.split(",")[0] == smallest]):
        chosen = {label: rows[label] for label in rows if label.split(",")[0] == "GSPO" or label in kept}
        if len(chosen) <= MOST_BARS:
            return chosen, [f"Shown: {'; '.join(chosen)}. There are {len(rows)}."]
    return rows, []


def _similarity(found: SweepSources) -> Drawn:
    """Of GSPO and QUATRO, as in the paper, where there are more than a picture can show."""
    rows, by_label = {}, found.samples(SIMILARITY_BENCHMARKS)
    if len(by_label) > MOST_HISTOGRAMS:
        by_label = {label: by_label[label] for label in by_label if label == "GSPO" or label.startswith("Ours")}
    for label, files in by_label.items():
        samples, _ = read_graded(files)
        rows[label] = list(similarity_result(samples, max_pairs=MAX_PAIRS).rows)
    return Drawn(
        similarity_figure(rows, sheet=_SHEET), [f"Up to {MAX_PAIRS} pairs of correct answers of each problem."]
    )


def _heatmap(found: SweepSources) -> Drawn:
    """Of the baseline and of QUATRO at its smallest radius, or of what there is."""
    by_label = found.samples(SIMILARITY_BENCHMARKS[:1])
    ours = [label for label in by_label if label.startswith("Ours")][-1:]
    others = [label for label in by_label if label == "GSPO"] or [label for label in by_label if label not in ours][:1]
    graded = {label: read_graded(by_label[label])[0] for label in (*others, *ours)}
    several = [{p.id for p in samples.graded() if p.correct > 1} for samples in graded.values()]
    common = sorted(set.intersection(*several), key=lambda id: (zlib.crc32(id.encode()), id))
    if not common:
        raise DataError(f"no problem of {SIMILARITY_BENCHMARKS[0]} has two correct answers of each of {list(graded)}")
    drawn = {label: heatmap_of(one, common[0], with_wrong=True) for label, one in graded.items()}
    note = "The problem is the first by a checksum of its id: it was not chosen for its looks."
    return Drawn(heatmap_figure(drawn, sheet=_SHEET), [note])


_FIGURES = (
    Kind("passk", "Pass@k against k", "", _curves("pass@k")),
    Kind("ucc", "UCC@k against k", "", _curves("ucc@k")),
    Kind("limitation", "Limits of clipping", "fig:limitation", _of_settings(limitation_figure)),
    Kind("delta-lambda", "δ and λ", "fig:delta_lambda", _of_settings(delta_lambda_figure)),
    Kind("entropy", "Entropy during training", "fig:entropy", _of_settings(entropy_figure)),
    Kind("stability", "Stale and large updates", "fig:stability", _of_settings(stability_figure)),
    Kind("similarity", "Similarity of correct answers", "fig:output_sim", _similarity),
    Kind("heatmap", "Similarity of the answers to a problem", "fig:qual_similarity", _heatmap),
    Kind("flips", "Problems newly solved", "fig:flip_rate", _flips),
    Kind("temperature", "Unique correct ratio by temperature", "fig:temperature", _temperature),
)


@dataclass(frozen=True)
class PaperPage:
    """What `write_paper` has written into ``out``: figures with notes; and what is missing, with the reason."""

    out: Path
    tables: list[Kind] = field(default_factory=list)
    figures: list[tuple[Kind, list[str]]] = field(default_factory=list)
    missing: list[tuple[Kind, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def write_paper(
    folder: Path,
    out: Path,
    *,
    top_p: float | None = None,
    temperature: float | None = None,
    cell: str | None = None,
    with_paper: bool = True,
    tell: Tell | None = None,
) -> PaperPage:
    """Writes every table and figure that the sweep in ``folder`` has the numbers for, and README.md about them.

    ``top_p`` and ``temperature`` None are the only ones that were measured (a temperature of 1 goes first), ``cell``
    None the cell `main` or, without one, all of them; ``with_paper`` puts the published numbers beside the sweep's.

    Raises:
        UsageError: an unknown cell, or several ways of sampling of which none is chosen.
        DataError: not a sweep, or none of its runs is done.
        MissingError: matplotlib is not installed.
    """
    found, page = SweepSources(folder, top_p, temperature, cell, with_paper), PaperPage(out)
    for place, kinds in (("tables", _TABLES), ("figures", _FIGURES)):
        for kind in kinds:
            path = out / place / kind.name
            if tell is not None:
                tell(kind.title)
            for ending in (".tex", ".csv", ".md", ".pdf", ".png"):  # of an earlier call
                path.with_suffix(ending).unlink(missing_ok=True)
            try:
                thing = kind.make(found)
            except QuatroError as error:
                page.missing.append((kind, " ".join(visible(str(error)).split())))
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(thing, Drawn):
                for ending in (".pdf", ".png"):
                    save_figure(thing.figure, path.with_suffix(ending))
                page.figures.append((kind, [_spelled(note) for note in thing.notes]))
            else:
                _write(path.with_suffix(".tex"), to_latex(thing, with_ci=False))
                _write(path.with_suffix(".csv"), to_csv(thing, with_ci=True))
                _write(path.with_suffix(".md"), to_markdown(thing, with_ci=False))
                page.tables.append(kind)
    page.warnings.extend(dict.fromkeys(found.warnings))
    _write(out / "README.md", readme(page, folder, num_runs=len(found.runs), models=found.models, tag=found.tag))
    return page


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.rstrip("\n") + "\n")


def readme(page: PaperPage, folder: Path, *, num_runs: int, models: Sequence[str], tag: Tag) -> str:
    """The page about the sweep in ``folder``, Markdown: its notes, what is missing, then everything that is there."""
    notes, stated = folder / NOTES, paper().sampling
    beside = f" (the paper: temperature {stated['temperature']:g} and top_p {stated['top_p']:g})"
    beside = "" if tag == Tag(stated["temperature"], stated["top_p"]) else beside
    missing = [f"- {kind.heading}: {reason}" for kind, reason in page.missing]
    lines = [
        f"# {visible(folder.resolve().name)}",
        "",
        *([notes.read_text(encoding="utf-8").strip(), ""] if notes.is_file() else []),
        f"{num_runs} finished runs of {', '.join(map(visible, models))}, measured at temperature "
        f"{tag.temperature:g} and top_p {tag.top_p:g}{beside}. Every table is in [tables](tables) as "
        "LaTeX, CSV and Markdown, every figure in [figures](figures) as PDF and PNG.",
        "",
        *(["## What is missing", "", *missing] if missing else ["Nothing of the paper's is missing."]),
        "",
    ]
    for kind in page.tables:
        text = (page.out / "tables" / f"{kind.name}.md").read_text(encoding="utf-8")
        lines += [f"## {kind.heading}", "", text, ""]
    for kind, said in page.figures:
        lines += [f"## {kind.heading}", "", f"![{kind.title}](figures/{kind.name}.png)", ""]
        lines += [f"{note}\n" for note in said]
    return "\n".join(lines)
