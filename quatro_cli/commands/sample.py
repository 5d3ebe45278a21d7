"""`quatro sample`: draw samples of benchmarks from a model or a run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from quatro_cli import options
from quatro_cli.output import output
from quatro_cli.warm_start import ensure_model

if TYPE_CHECKING:
    from quatro.sample.benchmark import SampleFile
    from quatro.sample.request import SamplePlan
    from quatro.sample.settings import SampleSettings
    from quatro_cli.output import Bar


MaxTokens = Annotated[int | None, Option(metavar="N", help="Token limit. Default: the run's, preset's, -b's.")]
Stop = Annotated[list[str] | None, Option(metavar="TEXT", help=r"End before TEXT (\n, \t, \\ as escapes); repeats.")]
Template = Annotated[str | None, Option(metavar="NAME|TEXT|FILE", help="As data.template (docs/data.md), or your own.")]
Kwargs = Annotated[str | None, Option(metavar="YAML", help="For the chat template: {enable_thinking: false}.")]
Engine = Annotated[str | None, Option(metavar="NAME", help="transformers (the default), vllm or module:Class.")]
Out = Annotated[
    Path | None, Option("-o", "--out", metavar="DIR", help="Default: RUN/samples/TAG or samples/MODEL/TAG.")
]


@dataclass(frozen=True)
class Drawing:
    """What `SampleRequest` has beside the model and the benchmarks, as it is typed."""

    step: options.Step = None
    n: Annotated[int | None, Option("-n", "--n", metavar="N", min=1, help="Samples per problem. Default: 256.")] = None
    limit: Annotated[int | None, Option(metavar="N", min=1, help="Only the first N problems.")] = None
    temperature: Annotated[float | None, Option(metavar="T", help="Divides the logits. Default: 1.")] = None
    top_p: Annotated[float | None, Option(metavar="P", help="Probability mass to draw from. Default: 1.")] = None
    top_k: Annotated[int | None, Option(metavar="K", min=0, help="Keep the K likeliest. Default: 0, all.")] = None
    max_tokens: MaxTokens = None
    stop: Stop = None
    preset: Annotated[str | None, Option(metavar="NAME", help="paper (T 1, top_p 0.7, n 256), verl-generation.")] = None
    template: Template = None
    system: Annotated[str | None, Option(metavar="TEXT", help="System prompt in place of the template's.")] = None
    chat_template_kwargs: Kwargs = None
    thinking: Annotated[str | None, Option(metavar="MARKERS", help="End of a thought, as </think>.")] = None
    seed: options.Seed = 0
    tag: Annotated[str | None, Option(metavar="TAG", help="The folder's name. Default: from the settings.")] = None
    out: Out = None
    engine: Engine = None
    gpus: Annotated[str | None, Option(metavar="N[,N]", help="GPUs, each with an engine. Default: the first.")] = None
    base_url: Annotated[str | None, Option(metavar="URL", help="OpenAI-compatible server (docs/servers.md).")] = None
    served_model: Annotated[str | None, Option(metavar="NAME", help="MODEL's name on the server.")] = None
    chat: Annotated[bool, Option("--chat", help="Send the server messages, for its chat template.")] = False
    text: Annotated[bool, Option("--text", help="Send the server text. Default: token ids.")] = False
    concurrency: Annotated[int | None, Option(metavar="N", min=1, help="Requests open at once. Default: 32.")] = None
    grade: Annotated[bool, Option("--grade", help="Grade the samples at once, not in `quatro eval`.")] = False


@options.spread
def sample(
    model: Annotated[str, options.run_paths("MODEL|RUN", "Folder, Hub id, embedded:NAME, served name, or run.")],
    benchmarks: Annotated[list[str], options.benchmark_names("Benchmarks, files or Hub data sets.")],
    *,
    drawing: Drawing,
    allow_unsafe_code: options.AllowUnsafe = False,
    dry_run: options.DryRun = False,
) -> None:
    """Draw n samples for each problem, or those still missing.

    \b
    Examples:
      quatro sample embedded:countdown -b countdown -n 256
      quatro sample runs/math --step 40 -b math500,aime24 --preset paper
    """
    from evals.benchmarks.prompts import PLACE
    from evals.text import unescaped
    from quatro.config.yaml_text import parse_value
    from quatro.sample.drawing import plan_samples
    from quatro.sample.request import SampleRequest

    typed = vars(drawing) | {
        "step": options.checkpoint_step(drawing.step),
        "stop": [unescaped(text) for text in drawing.stop] if drawing.stop else None,
        "system": drawing.system and unescaped(drawing.system),
        "chat_template_kwargs": parse_value(drawing.chat_template_kwargs or "null", "--chat-template-kwargs")[0],
    }
    if drawing.template and PLACE in drawing.template:
        typed["template"] = unescaped(drawing.template)
    plan = plan_samples(SampleRequest(model, options.split(benchmarks), **typed))
    output.info(*plan.notes)
    if dry_run:
        _describe(plan)
    else:
        _draw(plan)


def _describe(plan: SamplePlan) -> None:
    from quatro.sample.served import request_note

    for one in plan.benchmarks:
        count, n = len(one.problems), one.settings.n
        output.data(
            f"{count} problems x {n} samples = {count * n} of {one.name} from {plan.model.name} into {plan.folder} "
            f"({_words(one.settings)})"
        )
    if plan.endpoint is not None:
        output.data(request_note(plan, plan.endpoint))


def _draw(plan: SamplePlan) -> None:
    """A bar for each benchmark while it is drawn, and its file once that is complete."""
    from evals.files.whole import refuse_unwritable
    from quatro.sample.benchmark import pace
    from quatro.sample.drawing import draw_planned

    refuse_unwritable(plan.folder)
    bars: dict[str, tuple[Bar, int, float]] = {}
    longest = {one.name: one.settings.sampling.max_new_tokens for one in plan.benchmarks}

    def progress(benchmark: str, num_done: int, num_wanted: int, num_tokens: int) -> None:
        if benchmark not in bars:
            bars[benchmark] = stack.enter_context(output.progress(benchmark, num_wanted)), num_done, time.monotonic()
        bar, num_present, began_s = bars[benchmark]
        elapsed_s = time.monotonic() - began_s
        bar(num_done, pace(num_done - num_present, num_wanted - num_done, num_tokens, elapsed_s, longest[benchmark]))

    def finished(file: SampleFile) -> None:
        stack.close()
        output.info(f"{file.benchmark}: {file.num_new} samples drawn, {file.num_present} were there")
        output.data(str(file.path))

    if plan.endpoint is None or plan.endpoint.form == "ids":
        ensure_model(plan.model.name)
    with _keeping(plan.folder), ExitStack() as stack:
        draw_planned(plan, progress=progress, finished=finished)


@contextmanager
def _keeping(folder: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command at once: what was written stays, and exit codes are 130 and 143."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if folder.exists():
            output.info(f"the samples in {folder} are kept; the same command draws the rest")
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _words(settings: SampleSettings) -> str:
    from evals.benchmarks.prompts import TEMPLATES
    from evals.files.strict_json import shown
    from quatro.config.yaml_text import scalar_text

    template = settings.template if settings.template in TEMPLATES else shown(settings.template)
    system = "" if settings.system is None else f" with the system prompt {shown(settings.system)}"
    told = f" with {scalar_text(settings.chat_template_kwargs)}" if settings.chat_template_kwargs else ""
    sampling = settings.sampling
    top_k = f", top_k {sampling.top_k}" if sampling.top_k else ""
    stop = f", stop {', '.join(map(repr, sampling.stop))}" if sampling.stop else ""
    return (
        f"template {template}{system}{told}, temperature {sampling.temperature:g}, top_p {sampling.top_p:g}{top_k}, "
        f"at most {sampling.max_new_tokens} tokens{stop}"
    )
