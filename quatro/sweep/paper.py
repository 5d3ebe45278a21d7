"""The paper's tables and figures from one sweep, and a page that says what of them is missing: `quatro paper`.

    <out>/ README.md  paper.tex  tables/<name>.{tex,csv,md}  figures/<name>.{pdf,png}

Imports no torch. The same sweep gives the same bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from evals.errors import DataError, QuatroError
from evals.figures.bars import flips_figure, temperature_figure
from evals.figures.curves import curve_panels, curves_figure, published_beside
from evals.figures.delta_lambda import delta_lambda_figure, entropy_figure
from evals.figures.heatmap import heatmap_figure
from evals.figures.run_settings import Drawn, RunSetting
from evals.figures.sheet import Sheet
from evals.figures.similarity import similarity_figure
from evals.figures.stability import limitation_figure, stability_figure
from evals.figures.style import save_figure
from evals.files.whole import write_text
from evals.metrics.flips import DEFAULT_K
from evals.results.document import Result, Row
from evals.results.entries import ENTROPY, Entry, own_entries, published_entries
from evals.results.paper import CODE_BENCHMARKS
from evals.results.reading import Sources, read_sources
from evals.samples.graded import read_graded
from evals.studies.heatmap import heatmap_of
from evals.studies.similarity import similarity_result
from evals.tables.formats import to_csv, to_markdown
from evals.tables.latex import to_latex
from evals.tables.layouts import PAPER_TABLES, Layout, build_tables
from evals.tables.parts import Style, Table
from evals.text import visible
from quatro.runs.views.series import read_settings
from quatro.sweep.paper_page import Made, Missing, PaperPage, document, readme
from quatro.sweep.results import (
    chosen_runs,
    chosen_tag,
    flip_results,
    labelled_results,
    labelled_runs,
    run_tables,
    temperature_results,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAIN_CELL = "main"  # of a sweep of several cells, the one that tables are about
SIMILARITY_BENCHMARKS = ("math500", "amc23", "aime24")  # of the paper's figure
MOST_BARS = 12  # labels of a figure of bars (evals/figures/method_looks.py)
MOST_HISTOGRAMS = 4
MAX_PAIRS = 200  # of answers compared of each problem

Tell = Callable[[str], None]  # what is made next


class _Chosen(TypedDict):
    top_p: float
    temperature: float | None
    cell: str | None


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
        return read_sources([self.folder], expand=lambda folder: labelled_results(folder, **self.chosen))

    @property
    def chosen(self) -> _Chosen:
        """What the functions that read a sweep are called with."""
        return {"top_p": self.tag.top_p, "temperature": self.tag.temperature, "cell": self.cell}

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


# --- tables ---------------------------------------------------------------------------------------------------------


class _TableKind(NamedTuple):
    name: str
    title: str
    label: str
    make: Callable[[SweepSources], list[Table]]


def _of_layout(layout: Layout, metric: str) -> Callable[[SweepSources], list[Table]]:
    def make(found: SweepSources) -> list[Table]:
        published = published_entries(metric, tables=PAPER_TABLES[layout]) if found.with_paper else []
        return build_tables(layout, found.entries(metric), published, metric=metric, style=Style())

    return make


def _code(found: SweepSources) -> list[Table]:
    if not any(name in CODE_BENCHMARKS for name in found.sources.benchmarks):
        raise DataError("no benchmark of code was measured; `quatro sweep ... --eval humaneval,mbpp` does")
    return _of_layout("code", "pass@k")(found)


def _of_runs(layout: Literal["settings", "cost"]) -> Callable[[SweepSources], list[Table]]:
    return lambda found: run_tables(layout, labelled_runs([found.folder], cell=found.cell))


_TABLES = (
    _TableKind("average-passk", "Average Pass@k", "tab:avg_passk", _of_layout("average", "pass@k")),
    _TableKind("passk", "Pass@k of each benchmark", "tab:appendix_passk_all", _of_layout("benchmarks", "pass@k")),
    _TableKind("ucc", "UCC@k", "tab:ucc_all", _of_layout("ucc", "ucc@k")),
    _TableKind("entropy", "Final policy entropy", "tab:final_entropy", _of_layout("entropy", ENTROPY)),
    _TableKind("code", "Code generation", "tab:code_generation", _code),
    _TableKind("settings", "Hyper-parameters", "tab:hyperparams", _of_runs("settings")),
    _TableKind("cost", "What training took", "", _of_runs("cost")),
)


# --- figures --------------------------------------------------------------------------------------------------------


def _spelled(text: str) -> str:
    """QUATRO as the tables and the paper call it, whether ``text`` is about samples or about training."""
    return re.sub(r"(?:Ours delta=|QUATRO δ )(?=[0-9])", "Ours δ=", text)


_SHEET = Sheet(spell=_spelled)


class _FigureKind(NamedTuple):
    name: str
    title: str
    label: str
    draw: Callable[[SweepSources], Drawn]


def _curves(metric: str) -> Callable[[SweepSources], Drawn]:
    def draw(found: SweepSources) -> Drawn:
        entries = found.entries(metric)
        published, notes = published_beside(metric, entries) if found.with_paper else ([], [])
        return Drawn(curves_figure(curve_panels(entries, metric, published=published), sheet=_SHEET), notes)

    return draw


def _of_settings(figure_of: Callable[..., Drawn]) -> Callable[[SweepSources], Drawn]:
    return lambda found: figure_of(found.settings, sheet=_SHEET)


def _flips(found: SweepSources) -> Drawn:
    rows, notes = _few(_rows_by_label(flip_results(found.folder, **found.chosen)))
    held = {row.k for of_label in rows.values() for row in of_label if row.k is not None}
    k = DEFAULT_K if DEFAULT_K in held else min(held, default=DEFAULT_K)
    return Drawn(flips_figure(rows, k=k, sheet=_SHEET), notes)


def _temperature(found: SweepSources) -> Drawn:
    chosen: _Chosen = {**found.chosen, "temperature": found.temperature}
    results = temperature_results(found.folder, **chosen)
    if len({path.name for _, path in results}) == len(results):
        raise DataError("the samples are of one temperature; measure with `--eval-temperature 0.6,1`")
    rows, notes = _few(_rows_by_label(results))
    return Drawn(temperature_figure(rows, sheet=_SHEET), notes)


def _rows_by_label(results: Sequence[tuple[Result, Path]]) -> dict[str, list[Row]]:
    return {str(result.label): list(result.rows) for result, _ in results}


def _few(rows: dict[str, list[Row]]) -> tuple[dict[str, list[Row]], list[str]]:
    """As many labels as a figure of bars can show: GSPO and QUATRO, as in the paper, or QUATRO's smallest radius."""
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
    _FigureKind("passk", "Pass@k against k", "", _curves("pass@k")),
    _FigureKind("ucc", "UCC@k against k", "", _curves("ucc@k")),
    _FigureKind("limitation", "Limits of clipping", "fig:limitation", _of_settings(limitation_figure)),
    _FigureKind("delta-lambda", "δ and λ", "fig:delta_lambda", _of_settings(delta_lambda_figure)),
    _FigureKind("entropy", "Entropy during training", "fig:entropy", _of_settings(entropy_figure)),
    _FigureKind("stability", "Stale and large updates", "fig:stability", _of_settings(stability_figure)),
    _FigureKind("similarity", "Similarity of correct answers", "fig:output_sim", _similarity),
    _FigureKind("heatmap", "Similarity of the answers to a problem", "fig:qual_similarity", _heatmap),
    _FigureKind("flips", "Problems newly solved", "fig:flip_rate", _flips),
    _FigureKind("temperature", "Unique correct ratio by temperature", "fig:temperature", _temperature),
)


# --- the folder -----------------------------------------------------------------------------------------------------


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
    for table in _TABLES:
        _say(tell, table.title)
        _remove(out / "tables", table.name, ("tex", "csv", "md"))
        try:
            tables = table.make(found)
        except QuatroError as error:
            page.missing.append(Missing(table.title, table.label, _one_line(error)))
            continue
        notes = list(dict.fromkeys(note for one in tables for note in one.notes))
        page.tables.append(Made(table.name, table.title, table.label, tables, notes))
        for ending, text in (
            ("tex", to_latex(tables, with_ci=False)),
            ("csv", to_csv(tables, with_ci=True)),
            ("md", to_markdown(tables, with_ci=False)),
        ):
            _write(out / "tables" / f"{table.name}.{ending}", text)
    for figure in _FIGURES:
        _say(tell, figure.title)
        _remove(out / "figures", figure.name, ("pdf", "png"))
        try:
            drawn = figure.draw(found)
        except QuatroError as error:
            page.missing.append(Missing(figure.title, figure.label, _one_line(error)))
            continue
        notes = [_spelled(note) for note in drawn.notes]
        page.figures.append(Made(figure.name, figure.title, figure.label, notes=notes))
        _save(drawn.figure, out / "figures", figure.name)
    page.warnings.extend(dict.fromkeys(found.warnings))
    _write(out / "paper.tex", document(page))
    _write(out / "README.md", readme(page, folder, num_runs=len(found.runs), models=found.models, tag=found.tag))
    return page


def _say(tell: Tell | None, what: str) -> None:
    if tell is not None:
        tell(what)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.rstrip("\n") + "\n")


def _save(figure: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for ending in ("pdf", "png"):
        save_figure(figure, folder / f"{name}.{ending}")


def _remove(folder: Path, name: str, endings: Sequence[str]) -> None:
    """What an earlier call has written: it would be taken for this sweep's."""
    for ending in endings:
        (folder / f"{name}.{ending}").unlink(missing_ok=True)


def _one_line(error: QuatroError) -> str:
    return " ".join(visible(str(error)).split())
