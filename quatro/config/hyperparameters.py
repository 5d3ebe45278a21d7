"""The hyper-parameters of a run as a table of a paper has them: grouped, in words, each with whose value it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evals.tables.runs import HyperParameter
from quatro.config.blocks import SIZE_KEYS
from quatro.config.load import CHOSEN, OURS, STATED, basis, defaults_of, leaves, method_basis, value_texts
from quatro.config.model import Config

SET = "set by the user"
METHOD_GROUP, FURTHER = "RL algorithm", "Further settings"
# Group -> key -> words, in the order of the paper's table.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Optimization and training": {
        "optimizer.lr": "Learning rate",
        "optimizer.schedule": "Learning-rate schedule",
        "optimizer.name": "Optimizer",
        "optimizer.betas": "Adam's betas",
        "optimizer.weight_decay": "Weight decay",
        "optimizer.max_grad_norm": "Largest gradient norm",
        "optimizer.warmup_steps": "Warm-up steps",
        "inner_updates": "Update epochs (K)",
        "steps": "Iterations",
        "seed": "Seed",
    },
    "Batching": {
        "prompts_per_step": "Prompts per iteration",
        "minibatch_prompts": "Prompts per optimizer step",
        "rollouts_per_prompt": "Rollouts per prompt (N)",
    },
    METHOD_GROUP: {
        "method.name": "Method",
        "kl.beta": "Coefficient of the KL loss",
        "kl.reference": "Reference of the KL loss",
        "kl.estimator": "Estimator of the KL loss",
        "kl.aggregate": "Mean of the KL loss",
        "entropy_coefficient": "Coefficient of the entropy",
    },
    "Generation": {
        "rollout.temperature": "Temperature",
        "rollout.top_p": "top_p",
        "rollout.top_k": "top_k",
        "rollout.max_new_tokens": "Longest response, tokens",
        "data.max_prompt_tokens": "Longest prompt, tokens",
        "data.template": "Prompt template",
    },
    "Model and data": {"model": "Model", "data.prompts": "Training prompts", "reward.name": "Reward"},
    "Infrastructure": {
        "rollout.engine": "Engine of the rollouts",
        "policy.kind": "Engine of the updates",
        "policy.lora.rank": "Rank of LoRA",
        "dtype": "Number format",
        "processes": "Processes",
    },
}
# Where a run is kept and shown, which no number depends on, and what fits into its machine's memory.
_BOOKKEEPING = ("checkpoint.", "tracking.", "eval.", "early_stop.", "save_rollouts", "threads", "device", *SIZE_KEYS)
_PATHS = ("model", "kl.reference", "data.prompts")
_STATED_DELTAS = (0.1, 0.01, 0.001)


def hyperparameters(seeds: Sequence[Config]) -> list[HyperParameter]:
    """All that the numbers of runs that differ in their seed may depend on; folders by their names.

    Keys of no group stand under their own names.
    """
    config = seeds[0]
    texts, sources = value_texts(config), sources_of(config)
    texts["seed"] = ", ".join(str(one.seed) for one in seeds)
    defaults = dict(leaves(defaults_of(Config)))
    values = dict(leaves(config.model_dump(mode="python")))
    found = []
    for group, words in GROUPS.items():
        names = dict(words)
        if group == METHOD_GROUP:
            own = {key: key.removeprefix("method.") for key in texts if key.startswith("method.")}
            names = {"method.name": words["method.name"], **own, **words}
        found += [
            HyperParameter(group, name, _shown(key, texts[key]), sources[key])
            for key, name in names.items()
            if key in texts and values[key] is not None
        ]
    known = {key for words in GROUPS.values() for key in words}
    for key, text in texts.items():
        if key not in known and not key.startswith(("method.", *_BOOKKEEPING)):
            is_usual = key in defaults and defaults[key] == values[key]
            found.append(HyperParameter(FURTHER, key, text, sources[key], is_usual))
    return found


def sources_of(config: Config) -> dict[str, str]:
    """Whose each dotted key's value is: a provenance of `quatro.config.load`, a preset, or `SET`."""
    defaults = dict(leaves(defaults_of(Config)))
    method = config.method
    preset = getattr(method, "preset", None)
    of_preset = method.PRESETS.get(preset, {}) if preset is not None else {}
    own = {name: field.default for name, field in type(method).model_fields.items()} | {
        key: value for key, value in of_preset.items() if "." not in key
    }
    found = {}
    for key, value in leaves(config.model_dump(mode="python")):
        block, _, field = key.rpartition(".")
        place = field if block == "method" else key
        if preset not in (None, "paper") and place in of_preset and of_preset[place] == value:
            found[key] = f"preset {preset}"
        elif key == "method.delta" and value in _STATED_DELTAS:
            found[key] = STATED
        elif block == "method":
            is_own = field not in ("name", "preset") and own.get(field, method) == value
            found[key] = (method_basis(type(method), field) or OURS) if is_own else SET
        else:
            is_default = key in defaults and defaults[key] == value
            found[key] = basis(key, value) or (CHOSEN if is_default else SET)
    return found


def _shown(key: str, text: str) -> str:
    return text.strip("\"'").rstrip("/\\").replace("\\", "/").rpartition("/")[2] if key in _PATHS else text
