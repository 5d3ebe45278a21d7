"""`quatro eval grade`: who is right, said once and written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import AllowUnsafe, DryRun, Json, usage_error
from quatro_cli.output import output, visible

MOST_SHOWN_CHARS = 500  # of the end of a response, in --json
SHOWN_END = 200  # on the screen
MOST_MAJORITIES = 10  # problems whose samples agree against the reference
STAGES = {
    "reference": "there is no reference answer",
    "extraction": "no complete answer was found",
    "countdown": "checked step by step",
    "sandbox": "run with its tests",
    "reasoning-gym": "judged by the task's own checker",
    "own": "decided by a function of your own",
}
USUAL = ("correct", "incorrect", "no_answer")  # outcomes that the table always has

if TYPE_CHECKING:
    from evals.grading import Grade
    from evals.samples.graded import Asked, GradedFile
    from evals.samples.graders import GradingSettings
    from evals.samples.types import Sample


def grade(
    files: Annotated[
        list[Path], Argument(metavar="FILE", help="Samples (.jsonl, .jsonl.gz), folders of them, or run directories.")
    ],
    out: Annotated[
        Path | None,
        Option("-o", "--out", metavar="DIR", help="Folder for graded files. Default, for a run: RUN/graded."),
    ] = None,
    policy: Annotated[
        str | None, Option(metavar="NAME", help="strict (default); simko, to compare with published numbers.")
    ] = None,
    extraction: Annotated[
        str | None, Option(metavar="NAME", help="boxed (default); answer-is or last-number, if there is no box.")
    ] = None,
    grader: Annotated[
        str | None, Option(metavar="NAME", help="math, countdown, code, reasoning-gym or your own module:function.")
    ] = None,
    thinking: Annotated[str | None, Option(metavar="MARKERS", help="Judge what follows </think>.")] = None,
    jobs: shared.Jobs = None,
    allow_unsafe_code: AllowUnsafe = False,
    explain: Annotated[
        bool, Option("--explain", help="Show what is compared and what decides; write nothing.")
    ] = False,
    id: Annotated[str | None, Option(metavar="ID", help="With --explain: show only this problem.")] = None,
    disagree: Annotated[bool, Option("--disagree", help="Explain only samples whose stored score differs.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Grade samples once and store the grades.

    Each row gets `correct` (in place of one that it came with) and `outcome`: correct, incorrect, no_answer, timeout,
    error, or infra_error if this machine failed. The other commands of `quatro eval` read the stored grades. A file is
    graded again only if samples or settings changed. It is explained as it was graded, but for the options given.

    \b
    Examples:
      quatro eval grade samples/math500.jsonl -o graded
      quatro eval grade runs/math --explain --id 17
    """
    from evals.benchmarks.catalogue import GRADERS, is_grader
    from evals.benchmarks.prompts import check_markers
    from evals.grading import EXTRACTION_POLICIES, POLICIES
    from evals.samples.graded import Asked

    if not is_grader(grader):
        _one_of("--grader", grader, (*GRADERS, "a function of your own as module:function"))
    given = {
        "grader": grader,
        "policy": _one_of("--policy", policy, POLICIES),
        "extraction": _one_of("--extraction", extraction, EXTRACTION_POLICIES),
        "thinking": None if thinking is None else check_markers(thinking),
    }
    asked = Asked({name: value for name, value in given.items() if value is not None})
    if id is not None and not (explain or disagree):
        raise usage_error("--id goes with --explain: grading writes whole files")
    if explain or disagree:
        if out is not None or dry_run:
            raise usage_error("explaining writes nothing: leave out -o and --dry-run")
        _explain(files, asked, id, disagree=disagree, jobs=jobs, json=json)
        return
    _grade(files, out, asked, jobs=jobs, dry_run=dry_run, json=json)


def _grade(files: list[Path], out: Path | None, asked: Asked, *, jobs: int | None, dry_run: bool, json: bool) -> None:
    from evals.samples.graded import grade_file, note_of, plan
    from evals.samples.graders import missing_box_hint

    settings, planned = asked.settings(), plan(files, out)
    for source, target in planned:
        asked.refuse_forgotten(note_of(source), note_of(target))
    if dry_run:
        for source, target in planned:
            output.info(f"{source} -> {target}")
        if json:
            entries = [{"source": str(source), "graded": str(target)} for source, target in planned]
            output.json({"schema": 1, "grader": _grader(settings), "files": entries})
        return
    done: list[GradedFile] = []
    for source, target in planned:
        output.info(f"grading {source}")
        with output.progress(f"grading {source.name}, percent", 100) as bar:
            found = grade_file(
                source, target, settings, jobs=jobs, on_progress=lambda at, total: bar(100 * at // total)
            )
        hint = missing_box_hint(found.outcomes, settings)
        output.warn(*found.warnings, *([f"{source}: {hint}"] if hint else []))
        if any(one.score == "correct" for one in found.agreements):
            output.info(f"{source} came with grades (`correct`); {target} has quatro's in their place")
        output.info(f"{'done already' if found.was_done else 'written'}: {target}")
        done.append(found)
    _show_files(done, settings, json=json)


def _grader(settings: GradingSettings) -> dict[str, str]:
    from evals.grading import GRADER_VERSION

    return {"version": GRADER_VERSION, "policy": settings.policy, "extraction": settings.extraction}


def _show_files(done: list[GradedFile], settings: GradingSettings, *, json: bool) -> None:
    from evals.grading import OUTCOMES

    if json:
        entries = [
            {
                "source": str(file.source),
                "graded": str(file.target),
                "rows": file.num_rows,
                "outcomes": file.outcomes,
                "agreements": [one._asdict() for one in file.agreements],
                "num_against_reference": len(file.majorities),
                "against_reference": [one._asdict() for one in file.majorities[:MOST_MAJORITIES]],
            }
            for file in done
        ]
        output.json({"schema": 1, "grader": _grader(settings), "files": entries})
    else:
        # What hardly ever occurs takes no room where it did not.
        shown = [name for name in OUTCOMES if name in USUAL or any(file.outcomes.get(name) for file in done)]
        rows = [[file.target, file.num_rows, *(file.outcomes.get(name, 0) for name in shown)] for file in done]
        output.table("graded samples", ["file", "rows", *shown], rows)
        agreed = [
            [file.target, one.score, f"{100 * one.share:.1f} %", one.both, one.neither, one.only_ours, one.only_theirs]
            for file in done
            for one in file.agreements
        ]
        if agreed:
            columns = ["file", "score", "agree", "both", "neither", "only ours", "only theirs"]
            output.table("who calls samples right; --disagree explains where stored scores differ", columns, agreed)
        against = [one for file in done for one in file.majorities]
        if against:
            title = f"most samples agree, but not with the reference ({len(against)} problems; is it wrong?)"
            lines = [[*one[:-1], f"{100 * one.share:.0f} %"] for one in against[:MOST_MAJORITIES]]
            output.table(title, ["benchmark", "id", "reference", "most say", "share"], lines)
    if any(file.outcomes.get("infra_error") for file in done):
        output.warn("some samples have outcome infra_error: their graders were killed twice (memory?); grade again")


def _one_of(option: str, value: str | None, known: Sequence[str]) -> Any:
    """``value``, which is None where the option was not given; raises UsageError unless it is one of ``known``."""
    if value is not None and value not in known:
        raise usage_error(f"{option} {value!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return value


def _explain(files: list[Path], asked: Asked, id: str | None, *, disagree: bool, jobs: int | None, json: bool) -> None:
    from evals.files.strict_json import shown
    from evals.samples.graders import grade_rows, is_disputed, stored_scores
    from evals.samples.reading import read_samples, sample_files

    # One file at a time, as they are graded: several may hold the same problems.
    rows_of = {file: read_samples([file]).rows for path in files for file in sample_files(path)}
    if disagree and not any(True for rows in rows_of.values() for row in rows for _ in stored_scores(row)):
        raise usage_error("--disagree: the samples hold neither grades nor scores of another tool")
    rows_of = {file: [row for row in rows if id is None or row.id == id] for file, rows in rows_of.items()}
    if not any(rows_of.values()):
        raise usage_error(f"no sample has id {shown(id)}; `--explain` alone shows all")
    entries = []
    for file, rows in rows_of.items():
        settings = asked.settings_of(file)
        if settings != asked.settings():
            words = [f"{name} {value}" for name, value in settings.recorded().items() if value is not None]
            output.info(f"{file}: explained as it was graded, with {', '.join(words)}")
        rows = settings.without_thoughts(rows)
        grades = grade_rows(rows, settings=settings, files=[file], jobs=jobs)
        entries += [
            {"file": str(file), **_entry(row, found)}
            for row, found in zip(rows, grades, strict=True)
            if not disagree or is_disputed(row, bool(found.correct))
        ]
    if disagree:
        output.info(f"{len(entries)} of {sum(map(len, rows_of.values()))} samples")
    if json:
        output.json({"schema": 1, "samples": entries})
        return
    _show_explained(entries, with_file=len(rows_of) > 1, with_stored=disagree)


def _show_explained(entries: list[dict[str, Any]], *, with_file: bool, with_stored: bool) -> None:
    """A section for each sample: most cells are too long for the columns of a table."""
    heads = {"why": "decided by", "extracted": "answer", "form": "read as", "reference": "reference"}
    heads |= {"reference_form": "read as", **({"stored": "stored"} if with_stored else {}), "end": "ends with"}
    sections = []
    for entry in entries:
        is_whole, end = entry["completion_end"] == entry["extracted"], visible(entry["completion_end"].rstrip())
        end = end if len(end) <= SHOWN_END else f"...{end[3 - SHOWN_END :]}"
        shown = {**entry, "end": None if is_whole else end}
        title = f"{entry['benchmark']} {entry['id']}, sample {entry['sample_index']}: {entry['outcome']}"
        rows = [(head, visible(str(shown[key]))) for key, head in heads.items() if shown[key] not in (None, "")]
        sections.append((f"{entry['file']}: {title}" if with_file else title, rows))
    output.sections(sections)


def _entry(row: Sample, found: Grade) -> dict[str, Any]:
    from evals.grading import readings
    from evals.samples.graders import stored_scores

    is_maths = found.stage not in ("countdown", "sandbox", "reasoning-gym", "own") and row.answer is not None
    reference = "" if row.answer is None else str(row.answer)
    why = STAGES.get(found.stage, "")
    return {
        "benchmark": row.benchmark,
        "id": row.id,
        "sample_index": row.sample_index,
        "outcome": found.outcome,
        "stage": found.stage,
        "why": f"{why} ({found.detail})" if found.detail and why else why or found.detail,
        "extracted": found.extracted,
        "form": readings(found.extracted) if is_maths and found.extracted else None,
        "reference": reference,
        "reference_form": readings(reference) if is_maths and reference else None,
        "completion_end": row.completion[-MOST_SHOWN_CHARS:],
        "stored": ", ".join(f"{name} {int(value)}" for name, value in stored_scores(row)) or None,
    }
