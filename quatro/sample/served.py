"""Samples from a server: what is checked before it is asked, the prompts it gets, and what is recorded of it."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import Template, messages, render
from evals.errors import MissingError, UsageError, require
from evals.servers import api_key, checked_address, key_name, without_key
from quatro.policy.embedded import resolve_model
from quatro.policy.facts import EXTRA_STOP_TOKENS, vocabulary_size
from quatro.policy.loading import load_model_config, load_tokenizer
from quatro.policy.model_files import require_tokenizer
from quatro.rollout.prompts import make_prompt
from quatro.rollout.server import FORMS, Endpoint, PromptForm
from quatro.rollout.stops import check_temperature
from quatro.sample.engines import Opened, tokenized
from quatro.sample.request import BenchmarkPlan, SampledModel, SamplePlan, SampleRequest

logger = logging.getLogger(__name__)

# Requests of one call, for each that may be open: few enough to keep in memory, and the end of a call is seldom.
CALL_LENGTH = 64


def find_endpoint(request: SampleRequest) -> Endpoint | None:
    """The server that ``request`` names; None without one.

    Raises UsageError if an option needs a server and there is none, or an engine on this machine and there is a server;
    both forms of prompts are asked for, ``concurrency`` is below 1, or ``base_url`` is no address.
    """
    idle: dict[str, object] = {"--engine": request.engine, "--gpus": request.gpus}
    why = "is for an engine on this machine, and --base-url names a server; leave one out"
    if request.base_url is None:
        idle = {"--served-model": request.served_model, "--concurrency": request.concurrency}
        idle |= {"--chat": request.chat or None, "--text": request.text or None}
        why = "is for a server; name one with --base-url, or leave it out"
    for option, value in idle.items():
        if value is not None:
            raise UsageError(f"{option} {why}")
    if request.base_url is None:
        return None
    if request.chat and request.text:
        raise UsageError("--chat sends messages and --text sends text; choose one")
    if request.concurrency is not None and request.concurrency < 1:
        raise UsageError(f"--concurrency is at least 1, found {request.concurrency}")
    form: PromptForm = "chat" if request.chat else "text" if request.text else "ids"
    usual = Endpoint(checked_address(request.base_url), request.served_model, form)
    return usual if request.concurrency is None else replace(usual, concurrency=request.concurrency)


def check_served(endpoint: Endpoint, model: SampledModel, benchmarks: Sequence[BenchmarkPlan]) -> None:
    """Check what can be checked before the server is asked.

    Raises:
        UsageError: a chat template is wanted of text, or the key holds impossible characters.
        MissingError: MODEL has no tokenizer here, and token ids are to be sent.
    """
    api_key(os.environ)
    if endpoint.form == "text":
        for one in benchmarks:
            if one.template.is_chat:
                raise UsageError(
                    f"the prompt template {one.settings.template!r} of {one.name} is a chat's; type --chat, which lets "
                    "the server apply its own, or send the problem alone: --template plain"
                )
    if endpoint.form == "ids":
        otherwise = "or let the server make tokens, of messages (--chat) or of text (--text)"
        require("transformers", "sending token ids")
        try:
            require_tokenizer(model.name)
        except MissingError as error:
            raise MissingError(f"{error}; {otherwise}") from None


def request_note(plan: SamplePlan, endpoint: Endpoint) -> str:
    """What would be sent for each sample, and where."""
    key = key_name(os.environ)
    address = without_key(endpoint.base_url, api_key(os.environ))
    return (
        f"one request a sample, POST {address}/{endpoint.path} for the model "
        f"{endpoint.served_model or plan.model.name}: the prompt as {FORMS[endpoint.form]}, and a seed of its own; "
        f"at most {endpoint.concurrency} at once, {f'with the key in {key}' if key else 'without a key'}"
    )


@contextlib.contextmanager
def open_server(plan: SamplePlan, endpoint: Endpoint) -> Iterator[Opened]:
    """The server of ``plan``, asked what it serves.

    Raises:
        UsageError: it serves no such model, or does not sample at the temperature.
        MissingError: it does not answer, or MODEL has no tokenizer.
        DataError: a prompt leaves no room for a response in the model's context.
    """
    from evals.servers import Server
    from quatro.rollout.server import SEED_BITS, ServerSampler

    server = Server(endpoint.base_url, api_key(os.environ), concurrency=endpoint.concurrency)
    own = str(plan.model.run or plan.model.source.model)
    served = server.find_model([endpoint.served_model] if endpoint.served_model else [own, plan.model.name])
    if served.is_vllm:
        for one in plan.benchmarks:
            check_temperature("temperature", one.settings.sampling.temperature)
    else:
        logger.warning(
            "%s does not say that it is vLLM: a top_k, min_p or repetition penalty of its own, if it has one, acts on "
            "the samples and is not recorded",
            server.where,
        )
    tokenizer, stop_ids, num_ids = None, set(), 0
    if endpoint.form == "ids":
        tokenizer = load_tokenizer(resolve_model(plan.model.name))
        vocabulary = tokenizer.get_vocab()
        stop_ids = {tokenizer.eos_token_id, *(vocabulary[one] for one in EXTRA_STOP_TOKENS if one in vocabulary)}
        num_ids = len(tokenizer)
        with contextlib.suppress(MissingError):  # a folder with a tokenizer alone
            num_ids = max(num_ids, vocabulary_size(load_model_config(resolve_model(plan.model.name))) or 0)
        prompts = tokenized(plan, tokenizer, served.max_model_len)
    else:
        prompts = [
            [make_prompt(problem, _text(problem, one.template, endpoint.form), ()) for problem in one.problems]
            for one in plan.benchmarks
        ]
    sampler = ServerSampler(server, endpoint, served, tokenizer=tokenizer, stop_ids=sorted(stop_ids), num_ids=num_ids)
    # For sampling.json; the address is nobody's business, and a key none's at all.
    facts = {**asdict(served), "prompts": endpoint.form, "seed_bits": SEED_BITS}
    yield Opened(
        sampler=sampler,
        prompts=prompts,
        source=replace(plan.model.source, engine="server", server=facts),
        rows_per_call=lambda sampling: CALL_LENGTH * endpoint.concurrency,
    )


def _text(problem: Problem, template: Template, form: PromptForm) -> str:
    if form == "chat":
        sent: object = messages(template, problem.problem)
        if template.kwargs:
            sent = {"messages": sent, "chat_template_kwargs": dict(template.kwargs)}
        return json.dumps(sent, ensure_ascii=False)
    return render(template, problem.problem, None)
