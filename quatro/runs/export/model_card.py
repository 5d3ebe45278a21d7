"""The README.md of an exported model: what was trained how, and on what. Text from facts, no files.

Untrusted words stay words in its Markdown.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from evals.benchmarks.problems import FILE_ENDINGS
from evals.benchmarks.prompts import PLACE, messages
from evals.tables.formats import markdown_text
from evals.text import visible
from quatro.config import Config, leaves

PAPER = '"QUATRO: Query-Adaptive Trust Region Policy Optimization for LLM Fine-tuning" (Lee et al., 2026)'

# Keys that say where and how conveniently a run ran, or that stand elsewhere on the card.
LEFT_OUT = """
model method data.prompts device threads microbatch_tokens policy.kind policy.zero_stage policy.gradient_checkpointing
reward.workers rollout.engine rollout.rows_at_once rollout.cache_tokens rollout.gpu_memory_utilization
rollout.replay_file audit eval checkpoint tracking save_rollouts on_nonfinite
"""
PACKAGES = ("torch", "transformers")


@dataclass(frozen=True)
class Facts:
    """What a card is made of.

    ``is_inside``: the checkpoint was saved inside the iteration after ``step``. ``base_model`` and ``datasets`` are
    Hub ids, None and empty where there are none; ``environment`` is what environment.json holds.
    """

    name: str
    config: Config
    step: int
    dtype: str
    is_inside: bool = False
    base_model: str | None = None
    datasets: Sequence[str] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)


def model_card(facts: Facts) -> str:
    """The card as Markdown behind a YAML head. It names no host, user or folder of the machine that trained."""
    sections = (_head, _introduction, _prompting, _training, _making)
    return "\n\n".join(section(facts) for section in sections) + "\n"


def _head(facts: Facts) -> str:
    """The metadata that the Hub reads."""
    from huggingface_hub import ModelCardData

    method = _public(facts.config.method.name)
    data = ModelCardData(
        base_model=facts.base_model,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["quatro", "reinforcement-learning", *([] if method == "quatro" else [method])],
        datasets=list(facts.datasets) or None,
    )
    return f"---\n{data.to_yaml()}\n---"


def _introduction(facts: Facts) -> str:
    config = facts.config
    radius, lora = config.method.kl_radius, config.policy.lora
    rewards = dict.fromkeys(_code(_public(one.name)) for one in config.rewards.values())
    delta = f" (KL radius delta = {radius:g} nats per prompt)" if radius is not None else ""
    title = "QUATRO" if config.method.name == "quatro" else _public(config.method.name)
    reached = f"stopped inside iteration {facts.step + 1}" if facts.is_inside else f"{facts.step}"
    paragraphs = [
        f"# {_plain(facts.name)}",
        f"{_code(facts.base_model or _public(config.model))} fine-tuned by reinforcement learning with {_plain(title)}"
        f"{delta}: {reached} of {config.steps} iterations on {_code(_public(config.data.said))}, "
        f"rewarded by {', '.join(rewards)}. Weights are stored as {facts.dtype}.",
    ]
    if lora is not None:
        adapter = f"A LoRA adapter of rank {lora.rank} (alpha {lora.alpha})"
        paragraphs.append(f"{adapter} was trained and merged into the base model.")
    if config.method.name == "quatro":
        paragraphs.append(f"The method is that of the paper {PAPER}.")
    if not config.model.startswith("embedded:"):
        paragraphs.append("The licence of the base model applies to these weights.")
    return "\n\n".join(paragraphs)


def _prompting(facts: Facts) -> str:
    config = facts.config
    lines = ["## Use", "", "Prompts were rendered with this template; others are out of distribution.", ""]
    for template in {str(one): one for one in map(config.data.template_of, config.data.sources)}.values():
        turns = messages(template, PLACE)
        shown = [f"{turn['role']}: {turn['content']}" if template.is_chat else turn["content"] for turn in turns]
        lines += ["```text", *"\n".join(shown).splitlines(), "```", ""]
    lines += [
        *([_EMBEDDED_NOTE, ""] if config.model.startswith("embedded:") else []),
        "With quatro: `quatro sample FOLDER -b BENCHMARK`, with `--template`, `--system` and `--chat-template-kwargs` "
        "as `data.template`, `data.system` and `data.chat_template_kwargs` below.",
    ]
    return "\n".join(lines)


_EMBEDDED_NOTE = (
    "Load the tokenizer with `PreTrainedTokenizerFast`, as `AutoTokenizer` would put the model type's own "
    "pre-tokeniser in the place of its rules."
)


def _training(facts: Facts) -> str:
    config = facts.config
    settings = config.model_dump(mode="json")
    left_out = tuple(f"{name}." for name in LEFT_OUT.split())
    method = {f"method.{key}": value for key, value in leaves(settings["method"])}
    others = {key: value for key, value in leaves(settings) if not f"{key}.".startswith(left_out)}
    shown = {key: value if key == "rollout.stop" else _without_paths(value) for key, value in (method | others).items()}
    minibatches = config.prompts_per_step // config.minibatch_prompts
    about = (
        f"One iteration is {config.prompts_per_step} prompts x {config.rollouts_per_prompt} rollouts, learnt from in "
        f"{minibatches} minibatch{'es' if minibatches > 1 else ''} per pass."
    )
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in shown.items()}
    rows = [f"| {_code(key)} | {_code(text)} |" for key, text in texts.items()]
    return "\n".join(["## Training", "", about, "", "| setting | value |", "| --- | --- |", *rows])


def _making(facts: Facts) -> str:
    packages = facts.environment.get("packages") or {}
    versions = {name: facts.environment.get(name) for name in ("quatro", "commit")}
    versions |= {name: packages.get(name) for name in PACKAGES}
    said = [f"{name} {_code(str(version))}" for name, version in versions.items() if version]
    place = f"inside iteration {facts.step + 1}" if facts.is_inside else f"of iteration {facts.step}"
    return "\n".join(
        [
            "## How it was made",
            "",
            f"Trained with `quatro train`, written by `quatro export` from the checkpoint {place} after its hashes "
            f"were verified. {', '.join(said)}".rstrip(),
        ]
    )


def _plain(value: str) -> str:
    """``value`` as plain words in Markdown, on one line: no markup, HTML or table cell can begin in it."""
    return markdown_text(visible(value, keep=""))


def _code(value: str) -> str:
    """``value`` in code type, in a table too."""
    flat = visible(value, keep="").replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    ticks, pad = "`" * (longest + 1), " " if longest else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


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
