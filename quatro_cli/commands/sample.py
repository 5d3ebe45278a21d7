"""`quatro sample`: draw samples of benchmarks from a model or a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quatro_cli.options import Benchmarks, DryRun, Seed, split
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.benchmarks import Problem
    from quatro.sample import Source
    from quatro.types import Sampling


@dataclass(frozen=True)
class _Model:
    """What MODEL means: what to load, what to call it, and what the run it belongs to suggests."""

    load: str
    source: Source
    run: Path | None = None
    step: int | None = None
    template: str | None = None
    max_tokens: int | None = None


def sample(
    model: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="Folder, Hub id, embedded:countdown or a run.")],
    benchmarks: Benchmarks,
    n: Annotated[int, typer.Option("-n", "--n", "--num-samples", min=1, help="Samples per problem.")] = 256,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", help="Nucleus mass; 1 keeps every token.")] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Most likely tokens kept; 0 keeps all.")] = 0,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Longest response. Default: the run's, else the benchmark's."),
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
    engine: Annotated[str, typer.Option("--engine", help="What draws: transformers.")] = "transformers",
    grade: Annotated[bool, typer.Option("--grade", help="Judge each sample; `eval` does it otherwise.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Draw n samples of every problem of a benchmark; type it again to draw only what is missing.

    Of a run, the latest checkpoint is sampled. -b takes names of the registry and .jsonl files.

    \b
    Examples:
      quatro sample embedded:countdown -b countdown -n 256
      quatro sample runs/quickstart-quatro-0 -b countdown -n 256 --top-p 0.7
    """
    from evals.benchmarks import load_problems
    from evals.errors import UsageError
    from quatro.sample import default_tag
    from quatro.types import Sampling

    names = split(benchmarks)
    if not names:
        raise UsageError("name a benchmark with -b, for example -b countdown")
    if not temperature > 0 or not 0 < top_p <= 1:
        raise UsageError(f"temperature must be above 0 and top_p in (0, 1], found {temperature:g} and {top_p:g}")
    if engine != "transformers":
        raise UsageError(f"--engine {engine}: this version draws with `transformers` only")
    if out is not None and tag is not None:
        raise UsageError("--tag names a folder inside the default place; with -o, name the folder there")
    found = _find_model(model)
    longest = max_tokens or found.max_tokens or max(_longest_answer(name) for name in names)
    sampling = Sampling(temperature, top_p, top_k, longest)
    folder = out or _default_folder(model, found) / (tag or default_tag(sampling, step=found.step))
    problems = {name: load_problems(name) for name in names}
    templates = {name: template or found.template or _template_of(name) for name in names}
    if len(set(templates.values())) > 1:
        raise UsageError(
            f"{', '.join(names)} have different prompt templates ({', '.join(templates.values())}), and one folder "
            "holds samples of one; sample them one by one, or choose with --template"
        )
    if dry_run:
        for name in names:
            count = len(problems[name])
            output.data(f"{count} problems x {n} samples = {count * n} of {name} from {found.load} into {folder}")
        return
    _draw(found, problems, n=n, sampling=sampling, seed=seed, template=templates[names[0]], folder=folder, grade=grade)


def _draw(
    found: _Model,
    problems: dict[str, list[Problem]],
    *,
    n: int,
    sampling: Sampling,
    seed: int,
    template: str,
    folder: Path,
    grade: bool,
) -> None:
    from dataclasses import replace

    from quatro.data import to_prompt
    from quatro.policy.loading import stop_ids
    from quatro.rewards import make_reward
    from quatro.rollout.transformers import TransformersEngine
    from quatro.sample import fingerprint, sample_benchmark

    weights, loaded, tokenizer = _load(found)
    source = replace(found.source, fingerprint=fingerprint(Path(weights)) if Path(weights).is_dir() else None)
    drawer = TransformersEngine(loaded, tokenizer, eos_ids=stop_ids(tokenizer, loaded), collect_entropy=False)
    for name, rows in problems.items():
        prompts = [to_prompt(problem, template, tokenizer) for problem in rows]
        reward = make_reward(_grader_of(name)) if grade else None
        try:
            with output.progress(name, len(prompts) * n) as bar:
                drawn = sample_benchmark(
                    drawer,
                    prompts,
                    n=n,
                    sampling=sampling,
                    seed=seed,
                    template=template,
                    source=source,
                    folder=folder,
                    reward=reward,
                    progress=lambda done, total, bar=bar: bar.update(done),  # type: ignore[misc]
                )
        finally:
            if reward is not None:
                reward.close()
        output.info(f"{name}: {drawn.num_new} samples drawn, {drawn.num_present} were there")
        output.data(str(drawn.path))


def _load(found: _Model) -> tuple[str, Any, Any]:
    import torch

    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.setup import find_device
    from quatro.warmstart import is_cached, resolve_model

    device = find_device("auto")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if is_cached(found.load):
        weights = resolve_model(found.load)
    else:
        with output.progress("warm start", 1) as bar:
            weights = resolve_model(found.load, progress=lambda step, steps, loss: bar.update(step, f"loss {loss:.3f}"))
    return weights, load_model(weights, dtype, device), load_tokenizer(weights)


def _find_model(name: str) -> _Model:
    from quatro.sample import Source

    path = Path(name)
    if not (path / "config.yaml").is_file():
        return _Model(name, Source(model=name))
    from quatro.checkpoint import load
    from quatro.config import load_config

    config = load_config(path)
    checkpoint = load(path)
    method = config.method
    label = method.name if method.kl_radius is None else f"{method.name} delta={method.kl_radius:g}"
    return _Model(
        load=str(checkpoint.model),
        source=Source(model=config.model, method=label),
        run=path,
        step=checkpoint.step,
        template=config.data.template,
        max_tokens=config.rollout.max_new_tokens,
    )


def _default_folder(name: str, found: _Model) -> Path:
    from quatro.sample import file_stem

    return (
        found.run / "samples"
        if found.run is not None
        else Path("samples") / file_stem(re.sub(r"[/:]+", "-", name).strip("-."))
    )


def _template_of(benchmark: str) -> str:
    from evals.benchmarks import registry

    return registry()[benchmark].template if benchmark in registry() else "qwen-boxed"


def _longest_answer(benchmark: str) -> int:
    """Tokens that a complete answer may need, the stop token included."""
    from evals.countdown import MAX_ANSWER_TOKENS

    return MAX_ANSWER_TOKENS + 1 if _grader_of(benchmark) == "countdown" else 1024


def _grader_of(benchmark: str) -> str:
    from evals.benchmarks import registry

    return registry()[benchmark].grader if benchmark in registry() else "math"
