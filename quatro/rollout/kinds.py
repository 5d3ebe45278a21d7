"""How each `rollout.engine` is checked and made. What needs torch is imported when an engine is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import UsageError
from evals.files.own_code import file_of, import_own
from evals.samples.reading import read_samples
from quatro.config import packages
from quatro.policy.facts import stop_ids
from quatro.policy.loading import load_model, load_shape
from quatro.rollout.engine import Engine, EngineKind, Recipe
from quatro.rollout.stops import check_temperature

if TYPE_CHECKING:
    from quatro.policy.base import Policy
    from quatro.rollout.vllm import Following

MISMATCH_EVERY = 8


class Transformers(EngineKind):
    """`rollout.engine: transformers`: a decode loop on the policy's own tensors."""

    shares_weights = True

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        import torch

        from quatro.rollout.transformers import CopyEngine, TransformersEngine

        limits: dict[str, Any] = {"max_batch_rows": recipe.rows_at_once, "max_batch_tokens": recipe.cache_tokens}
        if policy is None:
            model = load_model(recipe.weights, getattr(torch, recipe.dtype), recipe.device)
            ids = stop_ids(tokenizer, model)
            return TransformersEngine(model, tokenizer, eos_ids=ids, collect_entropy=False, **limits)
        from quatro.policy.torch_policy import TorchPolicy

        if not isinstance(policy, TorchPolicy):
            raise UsageError(
                "rollout.engine: found transformers, which draws from tensors of this process, and the policy "
                f"{type(policy).__name__} has none here; expected vllm, which is sent the weights, or an engine of "
                "your own (module:Class)"
            )
        sampled = policy.sampling_model
        engine = TransformersEngine if sampled is policy.model else CopyEngine
        ids = stop_ids(tokenizer, policy.model)
        return engine(sampled, tokenizer, eos_ids=ids, compute=policy.computing, **limits)


class Vllm(EngineKind):
    """`rollout.engine: vllm`: vLLM with weights of its own, which `sync` replaces after each iteration."""

    takes_adapters = False
    rows_per_call = 2048  # it batches as it sees fit and is idle only at the end of a call

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Raises UsageError for a temperature that vLLM does not sample at, MissingError without its package."""
        for name, temperature in temperatures.items():
            check_temperature(name, temperature)
        packages.require("vllm", "the engine vllm")

    @staticmethod
    def check_model(shape: Any) -> None:
        """Raises MissingError if vLLM cannot be imported, UsageError if it does not take the model's heads."""
        from quatro.rollout.vllm import check_usable

        check_usable(shape)

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        """Loaded from `recipe.weights`: the first `sync` brings the policy's own."""
        from quatro.rollout.vllm import Following, VllmEngine

        model, follows = getattr(policy, "model", None) or load_shape(recipe.weights), Following(logp_every=0)
        if policy is not None:
            recipe, follows = _that_follows(recipe, tokenizer, policy, model)
        return VllmEngine(recipe, tokenizer, shape=model.config, eos_ids=stop_ids(tokenizer, model), follows=follows)


def _that_follows(recipe: Recipe, tokenizer: Any, policy: Policy, model: Any) -> tuple[Recipe, Following]:
    """What a `VllmEngine` needs to take over the weights of ``policy``, with room for the probe of them."""
    from quatro.rollout.probe import PROMPT_TOKENS, RESPONSE_TOKENS, make_probe, policy_score, probe_vocabulary
    from quatro.rollout.vllm import Following

    context, longest = policy.context, max(recipe.max_tokens, PROMPT_TOKENS + RESPONSE_TOKENS)
    num_embeddings = model.get_input_embeddings().num_embeddings
    probe = make_probe(
        policy_score(policy),
        vocabulary=probe_vocabulary(tokenizer, num_embeddings),
        context=context,
        temperature=policy.temperature,
        dtype=recipe.dtype,
    )
    follows = Following(
        temperature=policy.temperature,
        # Beyond float32 the trainer computes log pi_old itself, and the sampler's only serve the metrics mismatch/*.
        logp_every=1 if recipe.dtype == "float32" else MISMATCH_EVERY,
        probe=probe,
        shares_device=policy.device.type == "cuda",
        is_distributed=policy.world.size > 1,
    )
    return replace(recipe, max_tokens=longest if context is None else min(context, longest)), follows


class Replay(EngineKind):
    """`rollout.engine: replay`: recorded responses from a samples file."""

    is_recorded = True

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Raises DataError if the file of recorded responses cannot be read."""
        read_samples([Path(replay_file or "")], keep_extra=False)

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        from quatro.rollout.replay import ReplayEngine

        return ReplayEngine(Path(recipe.replay_file or ""), tokenizer)


def own_engine(spec: str) -> type[EngineKind]:
    """The class that ``spec`` names, `module:Class`.

    Raises:
        UsageError: it cannot be imported, or is no engine; names the file to look at.
    """
    kind: Any = import_own(spec, "engine")
    if EngineKind not in getattr(kind, "__mro__", ()) or kind.open is EngineKind.open:
        raise UsageError(
            f"engine {spec!r} is {kind!r:.80}; expected a class with `open` that is derived from "
            f"quatro.rollout.engine.EngineKind. Look at {file_of(spec)}"
        )
    return kind  # type: ignore[no-any-return]
