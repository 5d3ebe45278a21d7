"""Engines of the user's own, `module:Class`: what they give is checked, and an error in them names their file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evals.errors import QuatroError, UsageError, is_out_of_memory
from evals.files.own_code import file_of, import_own, line_of_own
from quatro.processes.stop import Stopped
from quatro.rollout.engine import Engine, EngineKind, Recipe, RolloutProgress, Seeds
from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from torch import Tensor

# A log-probability above 0 by no more than this is rounding.
ROUNDING = 1e-3


def own_engine(spec: str) -> type[EngineKind]:
    """The class that ``spec`` names; the engine that it opens is an `OwnEngine`.

    Raises:
        UsageError: it cannot be imported, or is no engine; names the file to look at.
    """
    kind: Any = import_own(spec, "engine")
    if EngineKind not in getattr(kind, "__mro__", ()) or kind.open is EngineKind.open:
        raise UsageError(
            f"engine {spec!r} is {kind!r:.80}; expected a class with `open` that is derived from "
            f"quatro.rollout.engine.EngineKind. Look at {file_of(spec)}"
        )

    def open(recipe: Recipe, tokenizer: Any, policy: Any = None) -> Engine:
        with _told(spec, "open"):
            engine = kind.open(recipe, tokenizer, policy)
        if Engine not in type(engine).__mro__:
            raise UsageError(
                f"engine {spec!r}: open gave an object of type {type(engine).__name__}; expected one of a class "
                f"derived from quatro.rollout.engine.Engine. Look at {file_of(spec)}"
            )
        return OwnEngine(spec, engine)

    checks = {name: staticmethod(_telling(spec, name, getattr(kind, name))) for name in ("check", "check_model")}
    return type(kind.__name__, (kind,), {**checks, "open": staticmethod(open)})


class OwnEngine(Engine):
    """``engine``, of the class that ``spec`` names; responses that are none are refused."""

    def __init__(self, spec: str, engine: Engine) -> None:
        self.spec = spec
        self.engine = engine

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """See `Sampler.generate`.

        Raises:
            QuatroError: the engine raised something that is none.
            UsageError: it gave something else than was asked for.
        """
        with _told(self.spec, "generate"):
            groups = self.engine.generate(prompts, seeds, sampling, progress=progress)
        if fault := _fault(groups, seeds, sampling):
            raise UsageError(f"engine {self.spec!r}: generate gave {fault}. Look at {file_of(self.spec)}")
        return groups

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        with _told(self.spec, "sync"):
            metrics = self.engine.sync(named_weights)
        if not isinstance(metrics, Mapping):
            raise UsageError(
                f"engine {self.spec!r}: sync gave {metrics!r:.80}; expected metrics, {{}} if there are none. Look at "
                f"{file_of(self.spec)}"
            )
        return metrics

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self.engine.state()

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self.engine.load_state(tensors, plain)

    def close(self) -> None:
        self.engine.close()


@contextmanager
def _told(spec: str, where: str) -> Iterator[None]:
    """Inside, an error of code that is not ours becomes one that names its line."""
    try:
        yield
    except (QuatroError, Stopped):
        raise
    except Exception as error:  # whatever a user's own code does
        if is_out_of_memory(error):
            raise
        raise QuatroError(
            f"engine {spec!r} raised {type(error).__name__} in {where}: {error!s:.300}\n  {line_of_own(error, spec)}"
        ) from error


def _telling(spec: str, where: str, function: Callable[..., None]) -> Callable[..., None]:
    def told(*arguments: Any, **options: Any) -> None:
        with _told(spec, where):
            function(*arguments, **options)

    return told


def _fault(groups: Any, seeds: Seeds, sampling: Sampling) -> str:
    """What is wrong with responses that were drawn for ``seeds``, and what was expected; empty if nothing is."""
    if not isinstance(groups, Sequence) or not all(isinstance(group, Sequence) for group in groups):
        return f"{groups!r:.80}; expected a list of the responses to each prompt"
    found, asked = [len(group) for group in groups], [len(group) for group in seeds]
    if found != asked:
        return f"groups of {found!r:.60} responses; expected {asked!r:.60}, one for each seed"
    faults = (_fault_of_one(rollout, sampling) for group in groups for rollout in group)
    return next(filter(None, faults), "")


def _fault_of_one(rollout: Any, sampling: Sampling) -> str:
    if not isinstance(rollout, Rollout):
        return f"{rollout!r:.80}; expected a quatro.types.Rollout for each seed"
    count = len(rollout.token_ids)
    if not all(type(id) is int and id >= 0 for id in rollout.token_ids):
        return f"token_ids {rollout.token_ids!r:.80}; expected a tuple of int"
    if count > sampling.max_new_tokens:
        return f"a response of {count} tokens; expected at most {sampling.max_new_tokens}"
    if not isinstance(rollout.text, str) or rollout.finish_reason not in ("stop", "length"):
        what = f"text {rollout.text!r:.40} and finish_reason {rollout.finish_reason!r:.40}"
        return f"{what}; expected a str, and 'stop' or 'length'"
    for name, sign in (("logp", -1), ("entropy", 1)):
        values = getattr(rollout, name)
        if values is None:
            continue
        if len(values) != count:
            return f"{len(values)} values of {name} for {count} tokens; expected one each, or None"
        wrong = [value for value in values if not (isinstance(value, float) and -ROUNDING <= sign * value < math.inf)]
        if wrong:
            return f"{name} {wrong[0]!r:.40}; expected a finite float, {'at most' if sign < 0 else 'at least'} 0"
    return ""
