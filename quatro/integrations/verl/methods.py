"""Our methods under the names that verl knows them by, and what of them verl cannot express. Imports no verl."""

import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from evals.errors import UsageError
from quatro.config.errors import REMOVED
from quatro.methods.base import Method
from quatro.registry import METHODS

# verl has methods of its own called grpo, gspo, gpg and cispo: ours have quatro_ before their name.
# Those that ask for what verl does not tell are not there.
METHOD_OF = {
    "_".join(dict.fromkeys(("quatro", name))): name
    for name in METHODS
    if not (needs := METHODS[name].model_construct().needs).old_logp and needs.solutions is None
}


def method_of(verl_name: str, block: Mapping[str, Any]) -> Method:
    """The method that verl calls ``verl_name``, with the keys of ``algorithm.quatro``.

    Raises UsageError, with its name, for a key or value that is wrong, or cannot be expressed in verl.
    """
    if verl_name not in METHOD_OF:
        known = ", ".join(METHOD_OF)
        raise UsageError(f"actor_rollout_ref.actor.policy_loss.loss_mode: found {verl_name}, expected one of {known}")
    name = METHOD_OF[verl_name]
    chosen = METHODS[name]
    default = chosen.model_fields["preset"].default if "preset" in chosen.model_fields else ""
    preset = chosen.PRESETS.get(str(block.get("preset", default)), {})
    filled = {key: value for key, value in preset.items() if "." not in key}
    try:
        method: Method = chosen(**{**filled, "name": name, **block})
    except ValidationError as error:
        found = [(".".join(map(str, e["loc"])), e["msg"]) for e in error.errors()]
        problems = [f"algorithm.quatro.{key}: {REMOVED.get(f'method.{key}', said)}" for key, said in found]
        again = "; print the command anew" if any(f"method.{key}" in REMOVED for key, _ in found) else ""
        raise UsageError(f"{'; '.join(problems)} (method {verl_name}){again}") from error
    refuse_inexpressible(method)
    return method


def verl_name_of(method: Method) -> str:
    """What verl calls ``method``; raises UsageError for a class of your own."""
    known = {METHODS[name]: verl_name for verl_name, name in METHOD_OF.items()}
    if verl_name := known.get(type(method)):
        return verl_name
    raise UsageError(
        f"method {type(method).__name__} is not known to verl: the plug-in has {', '.join(METHOD_OF.values())} only"
    )


def refuse_inexpressible(method: Method) -> None:
    """Raises UsageError, which names the key, for what no plug-in of verl can do."""
    if method.needs.solutions is not None or method.needs.old_logp:
        raise UsageError(f"method {type(method).__name__}: verl tells it neither texts nor log pi_old; use our trainer")
    if method.needs.overlong_buffer != 0:
        raise UsageError(
            "overlong_buffer: expected 0; verl has its own, reward.reward_manager.name=dapo with "
            "reward.reward_kwargs.overlong_buffer_cfg"
        )


def warn_unfiltered(method: Method, filters: Any) -> None:
    """Warn where a preset of ``method`` asks for dynamic sampling, and ``filters``, verl's, are off."""
    preset = method.PRESETS.get(getattr(method, "preset", ""), {})
    if preset.get("rollout.dynamic_sampling") and not (filters and filters.get("enable")):
        off = "verl draws no prompts anew; set algorithm.filter_groups.enable=true, and its metric=reward"
        warnings.warn(f"dynamic sampling of method {type(method).__name__} is off: {off}", stacklevel=2)
