"""`draw_samples` of a model or a run, which `quatro sample` calls. No torch before something is drawn."""

from __future__ import annotations

import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from evals.benchmarks.catalogue import find_benchmark, grader_of
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import odd_references
from evals.benchmarks.prompts import check_markers, checked_kwargs, find_template, template_text
from evals.errors import UsageError
from evals.files.whole import file_stem
from quatro.policy.model_files import check_model, unread_kwargs
from quatro.registry import ENGINES
from quatro.rewards import make_grader
from quatro.runs.checkpoint import unfinished_note
from quatro.sample import engines
from quatro.sample.benchmark import DrawProgress, SampleFile, sample_benchmark
from quatro.sample.folder import Tag
from quatro.sample.request import BenchmarkPlan, SampledModel, SamplePlan, SampleRequest, find_model
from quatro.sample.served import check_served, find_endpoint, open_server
from quatro.sample.settings import SampleSettings
from quatro.tasks import characters, codegrammar, countdown
from quatro.types import Sampling

logger = logging.getLogger(__name__)


def draw_samples(
    model: str | os.PathLike[str],
    benchmarks: str | Sequence[str],
    *,
    progress: DrawProgress | None = None,
    **options: Any,
) -> list[SampleFile]:
    """Files with n samples of every problem, one file for each benchmark; only missing samples are drawn.

    The samples are written to FOLDER/BENCHMARK.jsonl, and their settings to FOLDER/sampling.json. If a call is
    interrupted, repeat it: the files are then the same, byte for byte. Different settings need different folders.

        >>> for file in quatro.draw_samples("runs/first", ["countdown"], n=2, top_p=0.7):
        ...     print(file.path, file.num_new)
        runs/first/samples/T1-p0.7-step000002/countdown.jsonl 400

    Args:
        model: a run (its newest checkpoint), a checkpoint, a model's folder, a Hub id or `embedded:countdown`.
        benchmarks: one or several names of the registry, files of problems (.jsonl, .csv, .parquet) or data sets of the
            Hub (`OWNER/NAME:SPLIT` or `OWNER/NAME:CONFIG:SPLIT`).
        limit: only the first so many problems of each benchmark. A later call without it draws the rest. Default: all.
        step: which checkpoint of a run is sampled: the number of an iteration, or `best`, which `checkpoint.keep.best`
            keeps. Default: the newest.
        n: samples per problem. Default: 256.
        temperature: divides the logits. Default: 1.
        top_p: nucleus mass in (0, 1]; 1 keeps every token. Default: 1.
        top_k: how many of the most likely tokens are kept; 0 keeps all. Default: 0.
        max_tokens: longest response, in tokens. Default: the run's, else the preset's, else the benchmark's.
        stop: one or several strings; a response ends when its text contains one, and its text ends before it. Default:
            the run's with the run's template, else the template's own.
        preset: `paper` or `verl-generation`: other defaults of the five arguments from `n` to `max_tokens`
            (`quatro.sample.request.PRESETS`).
        template: prompt template: a name, a text with ``{problem}`` in it, or a file with such a text (docs/data.md).
            Default: the run's, else the benchmark's.
        system: system prompt in place of the template's own; an empty text means no system prompt. Default: the run's
            with the run's template, else the template's own.
        chat_template_kwargs: what the model's chat template is told by name, such as ``{"enable_thinking": False}``.
            Default: the run's with the run's template, else nothing.
        thinking: markers of a thought before the answer, ``</think>`` or ``<think> </think>``; each row then has the
            ``thought``, and the ``completion`` is the text after it. Default: the run's; an empty text is none.
        seed: each sample has its own seed, made from this one, the problem and the sample's index.
        tag: name of FOLDER in the default place. Default: made from the settings, such as `T1-p0.7`.
        out: FOLDER. Default: RUN/samples/TAG for a run, samples/MODEL/TAG for any other model.
        engine: `transformers`, `vllm` or your own, `module:Class`. Default: `transformers`.
        gpus: GPUs such as `0,1`, one engine on each. Default: one engine, on the first GPU or the CPU.
        base_url: an OpenAI-compatible server that draws the samples, such as `http://localhost:8000/v1`
            (docs/servers.md).
        served_model: name of the model on that server. Default: ``model``.
        chat: send messages, to which the server applies its own chat template. Then ``model`` may be its name on the
            server.
        text: send prompts as text. Then ``model`` may be its name on the server. Default: send token ids.
        concurrency: how many requests may be open at once. Default: 32.
        grade: grade each sample as it is drawn; its row then says whether it is correct.
        progress: called with the benchmark, samples in its file, samples wanted and tokens drawn by this call.

    Raises:
        UsageError: a value is out of range, a name is unknown, or FOLDER holds samples of other settings.
        MissingError: the model, a benchmark, a package or a GPU is not on this machine, or a server does not answer.
        DataError: a run or a file is damaged, a prompt leaves no room for a response in the model's context, or a
            server gives no usable responses.
    """
    return draw_planned(plan_samples(SampleRequest(model, benchmarks, **options)), progress=progress)


# `help` and docs/api.md show the options by name.
_signature = inspect.signature(draw_samples)
draw_samples.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[*inspect.signature(SampleRequest).parameters.values(), _signature.parameters["progress"]]
)


def plan_samples(request: SampleRequest) -> SamplePlan:
    """What `draw_samples` is going to do with these arguments; raises what it does before it loads the model."""
    endpoint = find_endpoint(request)
    names = [request.benchmarks] if isinstance(request.benchmarks, str) else list(request.benchmarks)
    if not names:
        raise UsageError("name a benchmark with -b, for example -b countdown")
    if request.limit is not None and request.limit < 1:
        raise UsageError(f"limit is the number of problems and at least 1, found {request.limit}")
    if request.engine == "server":
        raise UsageError("--engine: found server; expected transformers or vllm; a server is named by --base-url")
    engine = "server" if endpoint is not None else request.engine or "transformers"
    if endpoint is None and ENGINES[engine].is_recorded:
        raise UsageError(f"the engine {engine} deals out recorded responses and draws none; leave out --engine")
    n, sampling = request.numbers()
    notes = []
    if request.out is not None and request.tag is not None:
        raise UsageError(f"--tag {request.tag} and -o {request.out} both name the folder; leave out one of the two")
    found = find_model(os.fspath(request.model), request.step)
    checkpoint = found.checkpoint
    of_run, of_preset = found.max_tokens, request.preset_max_tokens
    if request.max_tokens is None and of_run and of_preset and of_run != of_preset:
        notes.append(
            f"max_tokens {of_run}, as the run was trained, replaces {of_preset} of the preset {request.preset}"
        )
    thinking = found.thinking if request.thinking is None else request.thinking and check_markers(request.thinking)
    template = None if request.template is None else template_text(request.template)
    request = replace(request, thinking=thinking or None, template=template)
    plans = [_plan_benchmark(name, request, n, sampling, found) for name in names]
    twice = [name for name, count in Counter(plan.name for plan in plans).items() if count > 1]
    if twice:
        raise UsageError(f"-b names the benchmark {twice[0]!r} twice; name each once")
    notes += [note for plan in plans for note in odd_references(plan.problems, [plan.grader])]
    notes += unread_kwargs(found.name, dict.fromkeys(key for plan in plans for key in plan.template.kwargs))
    if request.tag is not None and file_stem(request.tag) != request.tag:
        raise UsageError(
            f"--tag {request.tag!r} cannot be a folder's name; use letters, digits, dots and dashes, or -o DIR"
        )
    tag = Tag(sampling.temperature, sampling.top_p, sampling.top_k)
    if found.run is not None and checkpoint is not None:
        if note := unfinished_note(checkpoint):
            logger.warning(note)
        tag = replace(tag, step=checkpoint.step, is_inside=checkpoint.is_inside)
    if endpoint is not None:
        check_served(endpoint, found, plans)
    else:
        ENGINES[engine].check(temperatures={"temperature": sampling.temperature})
        check_model(found.name, trained_on=checkpoint.trained_on if checkpoint else None)
    return SamplePlan(
        request=request,
        model=found,
        benchmarks=plans,
        folder=found.samples_folder / (request.tag or str(tag)) if request.out is None else Path(request.out),
        engine=engine,
        gpus=[] if endpoint is not None else engines.gpu_list(request.gpus),  # last: only torch knows how many
        notes=notes,
        endpoint=endpoint,
    )


def _plan_benchmark(
    source: str, request: SampleRequest, n: int, sampling: Sampling, found: SampledModel
) -> BenchmarkPlan:
    """The plan of one benchmark, with the prompt, length and stop that fit it unless an option says otherwise."""
    problems = load_problems(source)
    name = problems[0].benchmark
    entry, grader = find_benchmark(name), grader_of(name)
    # Their prompts are plain, whatever a run was trained on, and answers are short, stop token included.
    of_toys = {"countdown": countdown.MAX_ANSWER_TOKENS + 1, "codegrammar": codegrammar.MAX_ANSWER_TOKENS}
    of_toys |= dict.fromkeys(characters.FORMS, characters.MAX_ANSWER_TOKENS)
    toy = "countdown" if grader == "countdown" else name
    usual, longest = "plain", of_toys.get(toy, 1024)
    of_run = None if found.data is None else found.data.asked_as(source)
    if toy not in of_toys and entry is not None and entry.reasoning_gym:
        usual = entry.template
    elif toy not in of_toys:
        usual = str(of_run.template) if of_run else entry.template if entry is not None else "qwen-boxed"
    template = request.template or usual
    is_runs = of_run is not None and template == of_run.template
    system = of_run.system if of_run and is_runs and request.system is None else request.system
    own = found.data.template_of(of_run).kwargs if found.data and of_run and is_runs else {}
    kwargs = own if request.chat_template_kwargs is None else checked_kwargs(request.chat_template_kwargs)
    stop = (request.stop,) if isinstance(request.stop, str) else request.stop
    if stop is None:
        stop = (found.stop if is_runs else ()) or find_template(template, system).stop
    # A preset does not cut a run: what was learnt with longer responses is not measured with shorter ones.
    longest = request.max_tokens or found.max_tokens or request.preset_max_tokens or longest
    settings = SampleSettings(
        n=n,
        sampling=replace(sampling, max_new_tokens=longest, stop=tuple(stop)),
        seed=request.seed,
        template=template,
        source=found.source,
        system=system,
        thinking=request.thinking,
        chat_template_kwargs=kwargs,
    )
    return BenchmarkPlan(name, problems[: request.limit], grader, settings)


def draw_planned(
    plan: SamplePlan, *, progress: DrawProgress | None = None, finished: Callable[[SampleFile], None] | None = None
) -> list[SampleFile]:
    """Draws what is planned, as `draw_samples` does; ``finished`` is told of every file once it is complete."""
    opening = engines.open_local(plan) if plan.endpoint is None else open_server(plan, plan.endpoint)
    files = []
    with opening as opened:
        for one, rows in zip(plan.benchmarks, opened.prompts, strict=True):
            with closing(make_grader(one.grader)) if plan.request.grade else nullcontext() as reward:
                file = sample_benchmark(
                    opened.sampler,
                    rows,
                    replace(one.settings, source=opened.source),
                    plan.folder,
                    reward=reward,
                    progress=progress,
                    num_rows=opened.rows_per_call(one.settings.sampling),
                )
            files.append(file)
            if finished is not None:
                finished(file)
    return files
