"""The README.md of an exported model: what was trained how, on what, with which outcome. Text from facts, no files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from evals.benchmarks.problems import FILE_ENDINGS
from evals.benchmarks.prompts import PLACE, TEMPLATES, Message, messages
from evals.files.metric_rows import with_base
from evals.text import visible
from evals.training_metrics import TRAINING_METRICS, evaluation_metrics
from quatro.config import Config, leaves
from quatro.export.card_results import FoundResults, model_index, results_section
from quatro.export.card_text import code, fence, is_number, number, plain, scalar, table

METHOD_TITLES = {"quatro": "QUATRO"}
PAPER = '"QUATRO: Query-Adaptive Trust Region Policy Optimization for LLM Fine-tuning" (Lee et al., 2026)'

# Keys that say where and how conveniently a run ran, or that stand elsewhere on the card.
LEFT_OUT = """
model method data.prompts device threads microbatch_tokens policy.kind policy.zero_stage policy.gradient_checkpointing
reward.workers rollout.engine rollout.rows_at_once rollout.cache_tokens rollout.gpu_memory_utilization
rollout.replay_file audit eval checkpoint tracking save_rollouts on_nonfinite
"""
LAST_ROWS = 10
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "vllm", "deepspeed", "peft")


@dataclass(frozen=True)
class Facts:
    """What a card is made of.

    ``is_inside``: the checkpoint was saved inside the iteration after ``step``. ``base_model`` and ``datasets`` are
    Hub ids, None and empty where there are none; ``rows`` are those of metrics.jsonl up to ``step``; ``results`` come
    with the name of where they were found; ``environment`` is what environment.json holds.
    """

    name: str
    config: Config
    step: int
    dtype: str
    is_inside: bool = False
    base_model: str | None = None
    datasets: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    results: FoundResults = ()
    environment: Mapping[str, Any] = field(default_factory=dict)


def model_card(facts: Facts) -> str:
    """The card as Markdown behind a YAML head. It names no host, user or folder of the machine that trained."""
    sections = (
        _head(facts),
        _introduction(facts),
        _prompting(facts),
        _training(facts),
        _metrics(facts),
        results_section(facts.results),
        _making(facts),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(facts: Facts) -> str:
    """The metadata that the Hub reads; results are its model index."""
    from huggingface_hub import ModelCardData

    index = model_index(facts.results)
    method = _public(facts.config.method.name)
    data = ModelCardData(
        base_model=facts.base_model,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["quatro", "reinforcement-learning", *([] if method == "quatro" else [method])],
        datasets=list(facts.datasets) or None,
        model_name=visible(facts.name, keep=""),
        eval_results=index or None,
    )
    if not index:
        data.pop("model_name")  # belongs to the model index
    return f"---\n{data.to_yaml()}\n---"


def _introduction(facts: Facts) -> str:
    config = facts.config
    radius = config.method.kl_radius
    delta = f" (KL radius delta = {radius:g} nats per prompt)" if radius is not None else ""
    title = METHOD_TITLES.get(config.method.name, _public(config.method.name))
    reached = f"stopped inside iteration {facts.step + 1}" if facts.is_inside else f"{facts.step}"
    lines = [
        f"# {plain(facts.name)}",
        "",
        f"{code(_base_name(facts))} fine-tuned by reinforcement learning with {plain(title)}{delta}: "
        f"{reached} of {config.steps} iterations on {code(_public(config.data.prompts))}, "
        f"rewarded by {code(_public(config.reward.name))}. Weights are stored as {facts.dtype}.",
    ]
    if (lora := config.policy.lora) is not None:
        adapter = f"A LoRA adapter of rank {lora.rank} (alpha {lora.alpha})"
        lines += ["", f"{adapter} was trained and merged into the base model."]
    if config.method.name == "quatro":
        lines += ["", f"The method is that of the paper {PAPER}."]
    if not config.model.startswith("embedded:"):
        lines += ["", "The licence of the base model applies to these weights."]
    return "\n".join(lines)


def _prompting(facts: Facts) -> str:
    config = facts.config
    template, rollout = config.data.template, config.rollout
    is_chat = config.data.prompt_template.is_chat
    turns = messages(config.data.prompt_template, PLACE)
    is_named = template in TEMPLATES and config.data.system is None
    named = f"the template {code(template)}" if is_named else "the template below"
    if is_chat:
        prompt = "tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)"
        setup = ["messages = [", *map(_turn, turns), "]"]
        encode = "inputs = tokenizer(prompt, add_special_tokens=False, return_tensors='pt')"
    else:
        own = json.dumps(turns[0]["content"], ensure_ascii=False) + '.replace("{problem}", problem)'
        prompt, setup = "problem" if template in TEMPLATES else own, []
        encode = "inputs = tokenizer(prompt, return_tensors='pt')"
    special = [_EMBEDDED_NOTE] if config.model.startswith("embedded:") else []
    loader = "PreTrainedTokenizerFast" if special else "AutoTokenizer"
    stop = f", stop_strings={list(config.stop)!r}, tokenizer=tokenizer" if config.stop else ""
    program = [
        f"from transformers import AutoModelForCausalLM, {loader}",
        "",
        "folder = '.'  # this one, or its id on the Hub",
        "model = AutoModelForCausalLM.from_pretrained(folder, dtype='auto')",
        f"tokenizer = {loader}.from_pretrained(folder)",
        "problem = " + repr(_EMBEDDED_PROBLEM.get(facts.config.data.prompts, "What is 6 times 7?")),
        *setup,
        f"prompt = {prompt}",
        encode,
        f"output = model.generate(**inputs, do_sample=True, temperature={rollout.temperature:g}, "
        f"top_p={rollout.top_p:g}, top_k={rollout.top_k}, max_new_tokens={rollout.max_new_tokens}{stop})",
        "print(tokenizer.decode(output[0, inputs['input_ids'].shape[1]:], skip_special_tokens=True))",
    ]
    shown = [f"{turn['role']}: {turn['content']}" if is_chat else turn["content"] for turn in turns]
    return "\n".join(
        [
            "## Use",
            "",
            f"Prompts were rendered with {named}; others are out of distribution.",
            "",
            *fence("text", "\n".join(shown).splitlines()),
            "",
            *fence("python", program),
            *special,
            "",
            f"Or with quatro: `quatro sample FOLDER -b BENCHMARK --template {template}`."
            if is_named
            else "Or with quatro: `quatro sample FOLDER -b BENCHMARK`, with `--template` and `--system` as above.",
        ]
    )


def _turn(turn: Message) -> str:
    content = json.dumps(turn["content"], ensure_ascii=False)
    filled = '.replace("{problem}", problem)' if "{problem}" in content else ""
    return f'    {{"role": "{turn["role"]}", "content": {content}{filled}}},'


_EMBEDDED_PROBLEM = {
    "countdown": "7 2 7 6 2 8 -> 67",
    "palindrome": "cejecj:",
    "shortest-path": "OO*/O#X/XOO:",
    "spell-backward": "wallboard:",
    "codegrammar": 'def f(xs):\n    """sort, drop the first"""\n',
}
_EMBEDDED_NOTE = (
    "\nThe tokenizer has rules of its own; `AutoTokenizer` would put the model type's own pre-tokeniser in its place."
)


def _training(facts: Facts) -> str:
    config = facts.config
    settings = config.model_dump(mode="json")
    method = {f"method.{key}": value for key, value in leaves(settings["method"])}
    others = {key: value for key, value in leaves(settings) if not _is_left_out(key)}
    shown = {key: value if key == "rollout.stop" else _without_paths(value) for key, value in (method | others).items()}
    rows = [[code(key), code(scalar(value))] for key, value in shown.items()]
    minibatches = config.prompts_per_step // config.minibatch_prompts
    return "\n".join(
        [
            "## Training",
            "",
            f"One iteration is {config.prompts_per_step} prompts x {config.rollouts_per_prompt} rollouts, learnt from "
            f"in {minibatches} minibatch{'es' if minibatches > 1 else ''} per pass.",
            "",
            *table(["setting", "value"], rows),
        ]
    )


def _metrics(facts: Facts) -> str:
    if not facts.rows:
        return ""
    known = {metric.name: metric.card for metric in TRAINING_METRICS if metric.card}
    known |= {name: name for name in evaluation_metrics(facts.rows[-1])}
    rows = []
    for name, title in known.items():
        series = [(int(row["step"]), float(row[name])) for row in with_base(facts.rows) if is_number(row.get(name))]
        if series:
            last = [value for step, value in series[-LAST_ROWS:] if step]
            ends = [f"{number(value)} ({step})" for step, value in (series[0], series[-1])]
            rows.append([plain(title), *ends, number(sum(last) / len(last))])
    header = ["metric", "first (iteration)", "last (iteration)", f"mean of the last {LAST_ROWS}"]
    return "\n".join(
        [
            "## Metrics",
            "",
            "Of the training rollouts; `eval/` of a benchmark, (0) before training.",
            "",
            *table(header, rows),
        ]
    )


def _making(facts: Facts) -> str:
    environment = facts.environment
    packages = environment.get("packages") or {}
    versions = {"quatro": environment.get("quatro"), "commit": environment.get("commit")}
    versions |= {"python": environment.get("python")} | {name: packages.get(name) for name in PACKAGES}
    versions |= {"device": environment.get("device")}
    rows = [[plain(name), code(str(value))] for name, value in versions.items() if value]
    place = f"inside iteration {facts.step + 1}" if facts.is_inside else f"of iteration {facts.step}"
    return "\n".join(
        [
            "## How it was made",
            "",
            f"Trained with `quatro train`, written by `quatro export` from the checkpoint {place} after its hashes "
            "were verified.",
            *(["", *table(["software", "version"], rows)] if rows else []),
        ]
    )


# ---- text


def _base_name(facts: Facts) -> str:
    return facts.base_model or _public(facts.config.model)


def _public(value: str) -> str:
    """A path of this machine as its last part; everything else as it is."""
    if value.startswith(("/", "~", ".")) or "\\" in value or value.endswith((".json", ".txt", *FILE_ENDINGS)):
        return PurePath(value.replace("\\", "/")).name or "a local file"
    return value


def _without_paths(value: Any) -> Any:
    """A setting with `_public` of every text inside it."""
    if isinstance(value, Mapping):
        return {_public(key): _without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    return _public(value) if isinstance(value, str) else value


def _is_left_out(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in LEFT_OUT.split())
