"""`quatro sample`: draw samples of benchmarks from a model or a run."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli.options import Benchmarks, DryRun, Seed, split
from quatro_cli.output import output

if TYPE_CHECKING:
    import torch

    from evals.problems import Problem
    from quatro.checkpoint import Checkpoint
    from quatro.rollout.engine import Sampler
    from quatro.sample import Progress
    from quatro.sample_engine import EngineName
    from quatro.sample_settings import Plan, Source
    from quatro.types import Prompt, Sampling
    from quatro_cli.output import Bar


@dataclass(frozen=True)
class _Model:
    """What MODEL means: what to load, what to call it, and what the run it belongs to suggests."""

    load: str
    source: Source
    run: Path | None = None
    checkpoint: Checkpoint | None = None
    step: int | None = None
    template: str | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class _Task:
    """What is drawn of one benchmark."""

    name: str
    problems: list[Problem]
    sampling: Sampling
    template: str
    grader: str


def sample(
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="Folder, Hub id, embedded:countdown or a run.")],
    benchmarks: Benchmarks,
    n: Annotated[
        int | None, typer.Option("-n", "--n", "--num-samples", min=1, help="Samples per problem. Default: 256.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature. Default: 1.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Nucleus mass; 1 keeps every token. Default: 1.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=0, help="Most likely tokens kept; 0 keeps all. Default: 0.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", min=1, help="Longest response. Default: the run's, the preset's or the benchmark's."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="paper (T 1, top_p 0.7, n 256; without a run 1024 tokens, its 7B: 3072) or verl-generation (also "
            "top_k 50). Options go before it."
        ),
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", help="Prompt template. Default: the run's, else the benchmark's.")
    ] = None,
    seed: Seed = 0,
    tag: Annotated[str | None, typer.Option("--tag", help="Folder of the samples. Default: of the settings.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Default: RUN/samples/TAG or samples/MODEL/TAG."),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="What draws: transformers or vllm.")] = "transformers",
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="0,1,...", help="One engine a GPU. Default: the first."),
    ] = None,
    grade: Annotated[bool, typer.Option("--grade", help="Judge each sample; `eval` does it otherwise.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Draw n samples of every problem of a benchmark; type it again to draw only what is missing.

    Of a run, the latest checkpoint is sampled. -b takes names of the registry and .jsonl files.

    \b
    Examples:
      quatro sample embedded:countdown -b countdown -n 256
      quatro sample runs/math -b math500,aime24 --preset paper
    """
    from evals.errors import UsageError
    from evals.whole_file import file_stem
    from quatro.preflight import check_model
    from quatro.sample_engine import check_sampling, engine_name, gpu_list
    from quatro.sample_settings import plan_of
    from quatro.sample_tag import Tag

    names = split(benchmarks)
    if not names:
        raise UsageError("name a benchmark with -b, for example -b countdown")
    drawer = engine_name(engine)
    plan, replaced = plan_of(preset, n=n, temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens)
    if out is not None and tag is not None:
        raise UsageError("--tag names a folder inside the default place; with -o, name the folder there")
    found = _find_model(model)
    of_run, of_preset = found.max_tokens, plan.preset_max_tokens
    if max_tokens is None and of_run and of_preset and of_run != of_preset:
        replaced.append(f"max_tokens {of_run}, as the run was trained, replaces {of_preset} of the preset {preset}")
    tasks = [_task(name, plan, template, found) for name in names]
    twice = [task.name for task in tasks if [other.name for other in tasks].count(task.name) > 1]
    if twice:
        raise UsageError(f"-b names the benchmark {twice[0]!r} twice; name each once")
    if tag is not None and file_stem(tag) != tag:
        raise UsageError(f"--tag {tag!r} is no plain folder name; use letters, digits, dots and dashes, or -o DIR")
    is_inside = found.checkpoint is not None and found.checkpoint.is_inside
    default = str(Tag.of(tasks[0].sampling, step=found.step, is_inside=is_inside))
    folder = out or _default_folder(model, found) / (tag or default)
    check_sampling(drawer, tasks[0].sampling)
    check_model(found.load, found.checkpoint)
    devices = gpu_list(gpus)  # only torch knows how many there are
    for line in replaced:
        output.info(line)
    if dry_run:
        for task in tasks:
            count = len(task.problems)
            output.data(
                f"{count} problems x {plan.n} samples = {count * plan.n} of {task.name} from {found.load} "
                f"into {folder} (template {task.template}, {_words(task.sampling)})"
            )
        return
    _draw(found, tasks, drawer, devices, n=plan.n, seed=seed, folder=folder, grade=grade)


def _task(source: str, plan: Plan, template: str | None, found: _Model) -> _Task:
    """Of one benchmark: the template and the length that fit it, where no option says otherwise."""
    from evals.benchmarks import registry
    from evals.countdown import MAX_ANSWER_TOKENS
    from evals.judging import grader_name
    from evals.loading import load_problems

    problems = load_problems(source)
    name = problems[0].benchmark
    entry = registry().get(name)
    grader = grader_name(name)
    if grader == "countdown":
        # Its prompt is a line of digits, whatever a run was trained on; an answer is short, stop token included.
        usual, longest = "plain", MAX_ANSWER_TOKENS + 1
    else:
        usual = found.template or (entry.template if entry is not None else "qwen-boxed")
        longest = 1024
    return _Task(
        name, problems, plan.sampling(of_run=found.max_tokens, of_benchmark=longest), template or usual, grader
    )


def _draw(
    found: _Model,
    tasks: list[_Task],
    engine: EngineName,
    gpus: list[str],
    *,
    n: int,
    seed: int,
    folder: Path,
    grade: bool,
) -> None:
    from dataclasses import replace

    from quatro.data import to_prompts
    from quatro.policy.digest import model_digest
    from quatro.policy.loading import context_limit, load_config, load_tokenizer
    from quatro.sample import refuse_long_prompts
    from quatro.sample_engine import Recipe, open_sampler, rows_per_call
    from quatro.setup import find_device

    weights = _weights(found)
    tokenizer, context = load_tokenizer(weights), context_limit(load_config(weights))
    prompts = {task.name: list(to_prompts(task.problems, task.template, tokenizer)) for task in tasks}
    for rows in prompts.values():
        refuse_long_prompts(rows, context)
    longest = max(len(p.token_ids) + task.sampling.max_new_tokens for task in tasks for p in prompts[task.name])
    device = find_device("auto")
    recipe = Recipe(
        engine=engine,
        weights=weights,
        dtype="bfloat16" if device.type == "cuda" else "float32",
        device=str(device),
        max_tokens=longest if context is None else min(context, longest),
    )
    source = replace(
        found.source,
        fingerprint=model_digest(weights),
        dtype=recipe.dtype,
        device=_device_name(device),
        engine=engine,
    )
    # Around the engine: SIGTERM must end it, and remove a merged model, as Ctrl-C does.
    with _keeping(folder), open_sampler(recipe, gpus) as sampler:
        for task in tasks:
            num_rows = rows_per_call(recipe, task.sampling, len(gpus))
            _draw_task(task, prompts[task.name], sampler, n, seed, source, folder, grade, num_rows)


def _draw_task(
    task: _Task,
    prompts: list[Prompt],
    sampler: Sampler,
    n: int,
    seed: int,
    source: Source,
    folder: Path,
    grade: bool,
    num_rows: int,
) -> None:
    from quatro.rewards import make_reward
    from quatro.sample import sample_benchmark

    reward = make_reward(task.grader) if grade else None
    try:
        with output.progress(task.name, len(prompts) * n) as bar:
            drawn = sample_benchmark(
                sampler,
                prompts,
                n=n,
                sampling=task.sampling,
                seed=seed,
                template=task.template,
                source=source,
                folder=folder,
                reward=reward,
                progress=_reporter(bar),
                num_rows=num_rows,
            )
    finally:
        if reward is not None:
            reward.close()
    output.info(f"{task.name}: {drawn.num_new} samples drawn, {drawn.num_present} were there")
    output.data(str(drawn.path))


def _reporter(bar: Bar) -> Progress:
    from quatro.sample import Pace

    pace = Pace()
    return lambda done, total, tokens: bar.update(done, pace.note(done, total, tokens))


@contextmanager
def _keeping(folder: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command at once: what was written stays, and exit codes are 130 and 143."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave) if threading.current_thread() is threading.main_thread() else None
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if folder.exists():
            output.info(f"the samples in {folder} are kept; type the same command to draw the rest")
        raise
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _device_name(device: torch.device) -> str:
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device.type)


def _words(sampling: Sampling) -> str:
    top_k = f", top_k {sampling.top_k}" if sampling.top_k else ""
    return (
        f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}{top_k}, "
        f"at most {sampling.max_new_tokens} tokens"
    )


def _weights(found: _Model) -> str:
    """The folder or Hub id to load; an embedded model is made if it is not there."""
    from quatro.warmstart import is_cached, resolve_model

    if is_cached(found.load):
        return resolve_model(found.load)
    with output.progress("warm start", 1) as bar:
        return resolve_model(found.load, progress=lambda step, steps, loss: bar.update(step, f"loss {loss:.3f}"))


def _find_model(name: str) -> _Model:
    from quatro.checkpoint import MANIFEST, MODEL, load
    from quatro.sample_settings import Source

    path = Path(name)
    if not (path / "config.yaml").is_file():
        folder = path.parent if path.name == MODEL and not (path / MANIFEST).is_file() else path
        if not (folder / MANIFEST).is_file():
            return _Model(name, Source(model=name))
        # A checkpoint, or the model in it: what it knows of its base is worth as much without the run.
        checkpoint = load(folder)
        return _Model(str(checkpoint.model), Source(model=name), checkpoint=checkpoint)
    from quatro.config import load_config
    from quatro.sample import unfinished_note

    config = load_config(path)
    checkpoint = load(path)
    if (note := unfinished_note(checkpoint)) is not None:
        output.warn(note)
    method = config.method
    label = method.name if method.kl_radius is None else f"{method.name} delta={method.kl_radius:g}"
    return _Model(
        load=str(checkpoint.model),
        source=Source(model=config.model, method=label),
        run=path,
        checkpoint=checkpoint,
        step=checkpoint.step,
        template=config.data.template,
        max_tokens=config.rollout.max_new_tokens,
    )


def _default_folder(name: str, found: _Model) -> Path:
    from evals.whole_file import file_stem

    return (
        found.run / "samples"
        if found.run is not None
        else Path("samples") / file_stem(re.sub(r"[/:]+", "-", name).strip("-."))
    )
