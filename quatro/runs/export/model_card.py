"""The README.md of an exported model: what was trained how, and on what. Its text is model_card.md, a jinja template.

Untrusted words stay words in its Markdown.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import PurePath
from typing import Any

from evals.benchmarks.problems import FILE_ENDINGS
from evals.benchmarks.prompts import PLACE, messages
from evals.tables.formats import markdown_text
from evals.text import visible
from quatro.config import Config, leaves

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
    from huggingface_hub import ModelCardData
    from jinja2 import Environment

    config, method = facts.config, _public(facts.config.method.name)
    head = ModelCardData(
        base_model=facts.base_model,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["quatro", "reinforcement-learning", *([] if method == "quatro" else [method])],
        datasets=list(facts.datasets) or None,
    )
    prompts = []
    for template in dict.fromkeys(map(config.data.template_of, config.data.sources)):
        turns = messages(template, PLACE)
        shown = [f"{turn['role']}: {turn['content']}" if template.is_chat else turn["content"] for turn in turns]
        prompts.append("\n".join("\n".join(shown).splitlines()))
    versions = {name: facts.environment.get(name) for name in ("quatro", "commit")}
    versions |= {name: (facts.environment.get("packages") or {}).get(name) for name in PACKAGES}
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"plain": _plain, "code": _code, "public": _public}
    page = resources.files("quatro.runs.export").joinpath("model_card.md").read_text(encoding="utf-8")
    return environment.from_string(page).render(
        facts=facts,
        config=config,
        head=head.to_yaml(),
        method=method,
        rewards=dict.fromkeys(_code(_public(one.name)) for one in config.rewards.values()),
        prompts=prompts,
        settings=_settings(config),
        versions=[(name, str(version)) for name, version in versions.items() if version],
    )


def _settings(config: Config) -> dict[str, str]:
    """The keys that matter to what was learnt, with their values as text; those of the method come first."""
    dumped = config.model_dump(mode="json")
    left_out = tuple(f"{name}." for name in LEFT_OUT.split())
    method = {f"method.{key}": value for key, value in leaves(dumped["method"])}
    others = {key: value for key, value in leaves(dumped) if not f"{key}.".startswith(left_out)}
    shown = {key: value if key == "rollout.stop" else _without_paths(value) for key, value in (method | others).items()}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in shown.items()}


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
