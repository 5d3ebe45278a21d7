"""`quatro train`: one run, begun or continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from quatro_cli.options import AllowUnsafe, DryRun, Json, Method, Set, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.config import Config
    from quatro.launch.begin import Prepared
    from quatro.runs.views.live import TrainingView


Source = Annotated[
    str,
    Argument(
        metavar="CONFIG|RUN", help="A YAML file, a configuration that comes with quatro, or, with --resume, a run."
    ),
]
Folder = Annotated[
    Path | None, Option("-o", "--out", metavar="DIR", help="Folder for the run. Default: runs/CONFIG-METHOD-SEED.")
]
Rehearse = Annotated[
    str | None,
    Option(
        metavar="CARD",
        help="Say what an iteration would take on a GPU that need not be here: h100, h200, a100-80gb, l40s, rtx-4090, "
        "a file of `make bench-gpu`, or memory=GIB,bandwidth=TB/S,tflops=N; then ,response=TOKENS.",
    ),
]


def train(
    source: Source,
    settings: Set,
    method: Method = None,
    out: Folder = None,
    new: Annotated[bool, Option("--new", help="If this run exists, use the next free name.")] = False,
    resume: Annotated[bool, Option("--resume", help="Continue a run from its last checkpoint.")] = False,
    steps: Annotated[
        int | None, Option(metavar="N", help="The same as -s steps=N; with --resume, train on to iteration N.")
    ] = None,
    allow_unsafe_code: AllowUnsafe = False,
    dry_run: DryRun = False,
    rehearse: Rehearse = None,
    json: Json = False,
) -> None:
    """Fine-tune a model.

    The first Ctrl-C stops after the current optimiser step and saves, the second stops at once. Responses
    that are still being drawn are discarded; --resume draws them again and ends as a run without the stop.

    \b
    Examples:
      quatro train quickstart -m gspo -s optimizer.lr=1e-4
      quatro train runs/quickstart-quatro-0 --resume --steps 200
      quatro train math-1.5b --rehearse h100,response=600
      torchrun --nproc-per-node 2 -m quatro_cli train math-1.5b-2gpu
    """
    from contextlib import closing

    from quatro.launch.begin import check_processes, prepare
    from quatro.processes.launcher import launched
    from quatro.runs.checkpoint import complete_checkpoints
    from quatro.runs.directory import free_name, is_abandoned, place_aside, refuse_occupied, refuse_read_only
    from quatro.runs.identity import why_finished
    from quatro.runs.status import read_status, refuse_locked
    from quatro.runs.views.live import TrainingView
    from quatro_cli.warm_start import ensure_shape

    launch = launched()
    if not launch.is_first:
        # Until the ranks have found each other, all on a machine meet the same errors.
        output.mute(errors=launch.local_rank > 0)
    settings = settings if steps is None else [*settings, f"steps={steps}"]
    if new and (resume or launch.size > 1):
        raise usage_error("--new is for a run that one process begins; leave it out, or name the folder with -o")
    if resume:
        config, run_path = _to_resume(source, settings=settings, method=method, out=out)
    else:
        config, run_path = _to_begin(source, settings=settings, method=method, out=out)
        run_path = free_name(run_path) if new else run_path
    if launch.local_rank == 0:
        ensure_shape(config.model, config.kl.reference)
    if rehearse is not None:
        return _rehearse(config, rehearse, json=json)
    if not dry_run:
        if resume and (why := why_finished(run_path, config)):
            output.info(f"{run_path} is done: {why}; `quatro runs show {run_path}` tells about it")
            _say(run_path, {"step": float(read_status(run_path)["step"])}, json=json)
            return
        if launch.is_first and not resume:
            refuse_occupied(run_path)
        if launch.is_first:
            refuse_read_only(run_path)
            refuse_locked(run_path)
        if not resume:
            check_processes(config, launch.size, source=source)
    elif (resume or is_abandoned(run_path)) and not complete_checkpoints(run_path) and (aside := place_aside(run_path)):
        output.info(f"the metrics and rollouts from before the first checkpoint go to {aside}")
    if dry_run:
        with closing(prepare(config, launch)) as prepared:
            return _describe(prepared, resume=resume, json=json)
    view = TrainingView(run_path, config, say=None if output.is_terminal("stderr") else output.info)
    with output.live(view.panel), closing(prepare(config, launch)) as prepared:
        ending, exit_code, metrics = _train(prepared, run_path, view, resume=resume)
    output.info(*ending)  # below the panel
    _say(run_path, metrics, json=json, is_interrupted=exit_code is not None)
    if exit_code is not None:
        output.info(f"stopped and saved; continue with `quatro train {run_path} --resume`")
        raise typer.Exit(exit_code)


def _to_begin(source: str, *, settings: list[str], method: str | None, out: Path | None) -> tuple[Config, Path]:
    from quatro.config import resolve_config
    from quatro.config.load import refuse_lost
    from quatro.launch.begin import HOW, begin_with_weights, command_for
    from quatro.runs.directory import default_run_path

    if (Path(source) / "config.yaml").is_file():
        raise usage_error(
            f"{source} is a run: continue it with `quatro train {source} --resume`, or begin a new one with its "
            f"configuration by `quatro train {source}/config.yaml`; {HOW}: `{command_for(source)}`"
        )
    resolved = resolve_config(source, overrides=settings, method=method)
    refuse_lost(resolved.config, f"quatro train {source}")
    config, notes = begin_with_weights(resolved.config)
    output.info(*resolved.notes, *notes)
    return config, out or default_run_path(resolved.stem, config)


def _to_resume(source: str, *, settings: list[str], method: str | None, out: Path | None) -> tuple[Config, Path]:
    from quatro.launch.begin import config_to_resume

    ignored = [name for name, value in (("-m", method), ("-o", out)) if value]
    if ignored:
        raise usage_error(
            f"--resume goes on with the run's own configuration, so {' and '.join(ignored)} would be ignored; "
            "leave it out, or begin a new run from RUN/config.yaml"
        )
    run = Path(source)
    if not (run / "config.yaml").is_file():
        raise usage_error(
            f"--resume needs a run directory, and {source} is not one (it has no config.yaml); see `quatro runs list`"
        )
    return config_to_resume(run, settings), run


def _say(run: Path, metrics: Mapping[str, float], *, json: bool, is_interrupted: bool = False) -> None:
    document = {"schema": 1, "run": str(run), "interrupted": is_interrupted, "metrics": dict(metrics)}
    output.answer(document, str(run), json=json)


def _rehearse(config: Config, card: str, *, json: bool) -> None:
    from quatro.rehearse.cards import read_card
    from quatro.rehearse.iteration import rehearse

    known = read_card(card)
    output.info("an iteration is rehearsed without its numbers; that takes about a minute")
    found = rehearse(config, *known)
    if json:
        output.json(found.document)
        return
    output.table(found.title, ("phase", "seconds", "peak GiB", "its time is"), found.rows)
    output.data("\n".join(["", *found.lines]))


def _describe(prepared: Prepared, *, resume: bool, json: bool) -> None:
    from quatro.launch.describe import describe, with_sizes

    if not prepared.launch.is_first:
        return
    described = describe(prepared if resume else with_sizes(prepared))
    output.answer(described.document, "\n".join(described.lines), json=json)


def _train(
    prepared: Prepared, path: Path, view: TrainingView, *, resume: bool
) -> tuple[Sequence[str], int | None, Mapping[str, float]]:
    """The run, whichever rank this is.

    Returns what is said of a run that is done, the exit code if it was stopped before, and its last metrics.
    """
    from quatro.launch.begin import open_run
    from quatro.launch.describe import batch_arithmetic, notes, with_sizes
    from quatro.processes.launcher import joined
    from quatro.processes.stop import StopRequest
    from quatro.runs.directory import is_abandoned
    from quatro.train import train
    from quatro.types import Stage
    from quatro_cli.warm_start import ensure_model

    launch = prepared.launch
    with joined(launch, is_cuda=prepared.device.type == "cuda") as world:
        if not launch.is_first:
            output.mute(errors=False)
        prepared = prepared if resume else with_sizes(prepared, world)
        config = prepared.config
        output.info("\n".join([*batch_arithmetic(prepared), *notes(prepared)]))
        if launch.local_rank == 0:
            for name in filter(None, (config.model, config.kl.reference)):
                ensure_model(name, lambda done, total, what: view.doing(Stage(what, "", {"steps": (done, total)})))
        world.barrier("the model to be there")
        if not resume and is_abandoned(path):
            output.info(f"{path} held a run that ended before its first checkpoint; it is begun anew")
        with open_run(prepared, path, world, resume=resume) as run:
            output.info(f"run: {path}")
            observer = view if launch.is_first else None
            with StopRequest(notify=output.info) as stop:
                metrics = train(config, run, observer=observer, stop=stop, world=world, prepared=prepared)
    is_done = metrics["step"] == config.steps or run.ended_early is not None
    return run.ending, None if is_done else stop.exit_code, metrics
