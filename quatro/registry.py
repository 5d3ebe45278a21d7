"""Methods, engines, policies, rewards, trackers by name: what a configuration may say, and the class behind each name.

To add one, write its file and a line here; the class is imported when its name is looked up. A reward is made from a
`RewardConfig` and says which options, limits and prompts it takes (`quatro/rewards/base.py`; `answers.py` is a short
example). A user's own method, engine or policy is named `module:Class`, and a function that rewards `module:function`.
"""

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from evals.errors import UsageError
from evals.files.own_code import import_own, is_own, own_kind


@dataclass(eq=False, repr=False)
class LazyTable(Mapping[str, Any]):
    """A mapping from the name of a ``what`` to a class, given as ``package.module:Class`` and imported when looked up.

    ``own`` gives the class behind a user's own `module:name`, where such are taken; it raises UsageError for any other.
    ``removed`` are former names, of which docs/relatives.py has the code.
    """

    what: str
    locations: dict[str, str]
    _: KW_ONLY
    own: Callable[[str], Any] | None = None
    removed: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        if name in self.locations:
            return located(self.locations[name])
        if self.own is not None and is_own(name):
            return self.own(name)
        guess = difflib.get_close_matches(name, self.locations, n=1)
        hint = f" Did you mean {guess[0]!r}?" if guess else ""
        if name in self.removed:
            hint = f" {name} was removed: docs/methods.md has it as a {self.what} of your own"
        raise UsageError(
            f"unknown {self.what} {name!r}; known: {', '.join(self)}, or your own as 'package.module:Class'.{hint}"
        )

    def takes(self, name: str) -> bool:
        """Whether ``name`` may be looked up; a user's own, which is imported only then, may still be missing."""
        return name in self.locations or (self.own is not None and is_own(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def __contains__(self, name: object) -> bool:
        return name in self.locations


def located(location: str) -> Any:
    """What ``package.module:NAME`` names."""
    module, _, attribute = location.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _Methods(LazyTable):
    """The class of each method by name; a class's fields are its hyper-parameters. docs/methods.md compares methods.

    >>> list(quatro.METHODS)
    ['quatro', 'budgeted', 'grpo', 'gspo', 'gmpo', 'gpg', 'dapo', 'cispo', 'ucpo', 'cluster-weighted']
    >>> quatro.METHODS["quatro"](delta=0.01).kl_radius
    0.01
    """


METHODS = _Methods(
    "method",
    {
        "quatro": "quatro.methods.beyond_paper:TemperedQuatro",  # methods/quatro.py, and experiments with its lam
        "budgeted": "quatro.methods.budgeted:Budgeted",
        "grpo": "quatro.methods.grpo:Grpo",
        "gspo": "quatro.methods.gspo:Gspo",
        "gmpo": "quatro.methods.gmpo:Gmpo",
        "gpg": "quatro.methods.gpg:Gpg",
        "dapo": "quatro.methods.dapo:Dapo",
        "cispo": "quatro.methods.cispo:Cispo",
        "ucpo": "quatro.methods.ucpo:Ucpo",
        "cluster-weighted": "quatro.methods.cluster_weighted:ClusterWeighted",
    },
    own=lambda spec: import_own(spec, "method"),
    removed=("dppo", "pmd", "maxrl", "pkpo"),
)
# Each is an `EngineKind` of quatro/rollout/engine.py.
ENGINES = LazyTable(
    "engine",
    {
        "transformers": "quatro.rollout.engine:Transformers",
        "vllm": "quatro.rollout.engine:Vllm",
        "replay": "quatro.rollout.engine:Replay",
    },
    own=lambda spec: own_kind(spec, "engine", located("quatro.rollout.engine:EngineKind")),
)
# Each is a `PolicyKind` of quatro/policy/kinds.py.
POLICIES = LazyTable(
    "policy",
    {"local": "quatro.policy.kinds:Local", "deepspeed": "quatro.policy.kinds:DeepSpeed"},
    own=lambda spec: own_kind(spec, "policy.kind", located("quatro.policy.kinds:PolicyKind")),
)
# Each has `start`, `log` and `end`, as the user's own have.
TRACKERS = LazyTable(
    "tracker",
    {
        "tensorboard": "quatro.runs.trackers:_TensorBoard",
        "wandb": "quatro.runs.trackers:_Wandb",
        "trackio": "quatro.runs.trackers:_Trackio",
    },
    own=lambda spec: located("quatro.runs.trackers:own_tracker")(spec),
)
# Each is a `Reward` of quatro/rewards/base.py.
REWARDS = LazyTable(
    "reward",
    {
        "math": "quatro.rewards.answers:MathReward",
        "countdown": "quatro.rewards.answers:CountdownReward",
        "countdown-distance": "quatro.rewards.answers:DistanceReward",
        "code": "quatro.rewards.code:CodeReward",
        "reasoning-gym": "quatro.rewards.gym:GymReward",
        "model": "quatro.policy.reward_model:ModelReward",
        "sum": "quatro.rewards.sum:SumReward",
        "rarity": "quatro.rewards.sum:RarityReward",
    },
    own=lambda spec: located("quatro.rewards.function:FunctionReward"),
)
