"""`quatro eval export`: samples and results in the formats of other programs."""

from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from typer import Argument, Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import DryRun, Json, refuse_idle, usage_error
from quatro_cli.output import output


def export(
    files: Annotated[list[Path], Argument(metavar="FILE", help="Samples or results; a run directory holds both.")],
    to: Annotated[Literal["inspect", "every-eval-ever", "hub"], Option(metavar="FORMAT", help="One of the above.")],
    out: Annotated[Path, Option("-o", "--out", metavar="DIR", help="Where the files go.")],
    date: Annotated[
        datetime | None, Option(formats=["%Y-%m-%d"], metavar="DAY", help="When this was measured.")
    ] = None,
    model: Annotated[str | None, Option(metavar="OWNER/NAME", help="The model on the Hub.")] = None,
    dataset: Annotated[str | None, Option(metavar="ID[:TASK]", help="The benchmark on the Hub.")] = None,
    organization: Annotated[str | None, Option(metavar="NAME", help="Who measured.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace files that exist.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write samples or results for other programs.

    \b
    FORMAT           FILE                   DIR gets
    inspect          samples                BENCHMARK.eval, for `inspect view`
    every-eval-ever  results of passk, ucc  data/BENCHMARK/OWNER/NAME/UUID.json
    hub              results of passk, ucc  .eval_results/BENCHMARK.yaml, for a model's page

    Nothing is sent anywhere. Columns of your own and folders in names are left out.

    \b
    Examples:
      quatro eval export samples/math500.jsonl --to inspect --date 2026-01-31 -o logs
      quatro eval export passk.json --to every-eval-ever --date 2026-01-31 --model me/math -o eee
      quatro eval export passk.json ucc.json --to hub -o models/math-quatro
    """
    from evals.files.whole import write_whole
    from evals.metrics.passk_ucc import passk_result, ucc_result
    from evals.results.reading import read_sources
    from evals.samples import exporting

    refuse_idle({"--organization": to != "every-eval-ever" and organization}, f"--to {to}")
    refuse_idle({"--dataset": to == "inspect" and dataset}, f"--to {to}")
    day = None if date is None else date.replace(tzinfo=UTC)
    documents = [] if to == "inspect" else read_sources(files).results
    if to == "hub":
        found = exporting.hub_results(documents, date=day, dataset=dataset)
    elif day is None:
        raise usage_error(f"--to {to} needs the day of the measurement; add it, as in --date 2026-01-31")
    elif to == "every-eval-ever":
        found = exporting.every_eval_ever(documents, day, model=model, by=organization, dataset=dataset)
    else:
        samples, about = shared.graded_samples(files, [])
        results = [passk_result(samples, about=about)]
        with shared.progress("clustering problems") as tell:
            results.append(ucc_result(samples, jobs=None, on_progress=tell, about=about))
        found = exporting.inspect_logs(samples, results, created=day, model=model)
    paths = {str(out / name): content for name, content in found.items()}
    if not paths:
        raise usage_error("nothing to export; expected results of `quatro eval passk` or `ucc` with Pass@1 (--k 1)")
    if taken := [path for path in paths if Path(path).exists() and not overwrite]:
        raise usage_error(f"{taken[0]} exists, and nothing was written; name another folder, or add --overwrite")
    for path, content in paths.items() if not dry_run else ():
        write_whole(Path(path), [content])
    output.answer({"schema": 1, "files": list(paths)}, "\n".join(paths), json=json)
    if to == "hub":
        output.info(f"to publish it: hf upload {model or 'OWNER/NAME'} {quote(str(out))}")
