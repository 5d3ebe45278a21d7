"""Rollouts by vLLM inside this process: token ids in, token ids and log-probabilities out, weights sent by `sync`.

vLLM is imported when an engine is made, never with this file. What it changes in the process is put back: global
random generators, environment variables, the number of threads, `torch.set_num_threads`. One engine a process.
"""

import contextlib
import logging
import math
import os
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from evals.errors import DivergedError, MissingError, UsageError, require
from quatro.policy.base import Policy
from quatro.policy.device import attention_widths, cache_token_bytes
from quatro.rollout.engine import Engine, Recipe, RolloutProgress, Seeds
from quatro.rollout.probe import PROMPT_TOKENS, RESPONSE_TOKENS, Probe, make_probe, policy_score, probe_vocabulary
from quatro.rollout.stops import ResponseTexts, check_temperature, response_limits
from quatro.types import FinishReason, Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)

# Read by vLLM when it is first imported: one process, no pinning of threads, no reports home, a log that is ours.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}
# Keys and values of a CPU engine: as many sequences of full length as this, within bounds.
CPU_CACHE_SEQUENCES = 256
CPU_CACHE_BYTES = (64 << 20, 4 << 30)
CPU_BLOCK_TOKENS = 128
CPU_STEP_TOKENS = 4096
MAX_SEED = (1 << 63) - 1
MISMATCH_EVERY = 8


@dataclass(frozen=True)
class Following:
    """What an engine is told that follows a policy.

    ``temperature`` is the one that training samples at: `Rollout.logp` is known at temperature 1 and there, and None
    where vLLM would renormalise it over a truncated distribution. Of the responses of a call every ``logp_every``-th is
    asked for it, the first one included (0: none), which changes none of them. With a ``probe`` every `sync` is
    verified. ``shares_device``: on a GPU, `rest` leaves the memory to the trainer. ``is_distributed``: one of the
    processes of a torchrun, each with an engine of its own.
    """

    temperature: float = 1.0
    logp_every: int = 1
    probe: Probe | None = None
    shares_device: bool = False
    is_distributed: bool = False


def that_follows(recipe: Recipe, tokenizer: Any, policy: Policy, model: Any) -> tuple[Recipe, Following]:
    """What a `VllmEngine` needs to take over the weights of ``policy``, with room for the probe of them."""
    context, longest = policy.context, max(recipe.max_tokens, PROMPT_TOKENS + RESPONSE_TOKENS)
    num_embeddings = model.get_input_embeddings().num_embeddings
    probe = make_probe(
        partial(policy_score, policy),
        vocabulary=probe_vocabulary(tokenizer, num_embeddings),
        context=context,
        temperature=policy.temperature,
        dtype=recipe.dtype,
    )
    follows = Following(
        temperature=policy.temperature,
        # Beyond float32 the trainer computes log pi_old itself, and the sampler's only serve the metrics mismatch/*.
        logp_every=1 if recipe.dtype == "float32" or recipe.needs_logp else MISMATCH_EVERY,
        probe=probe,
        shares_device=policy.device.type == "cuda",
        is_distributed=policy.world.size > 1,
    )
    return replace(recipe, max_tokens=longest if context is None else min(context, longest)), follows


class VllmEngine(Engine):
    """Draws with an LLM of its own, loaded as ``recipe`` says; ``shape`` is the model's configuration.

    Raises:
        MissingError: vLLM is not installed, or cannot be imported.
        UsageError: vLLM cannot hold this model on this device.
    """

    def __init__(
        self, recipe: Recipe, tokenizer: Any, *, shape: Any, eos_ids: Sequence[int], follows: Following
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_ids = tuple(eos_ids)
        self.max_model_len = recipe.max_tokens
        self.logp_every = follows.logp_every
        self.probe = follows.probe
        self._num_calls = 0
        # Raw log-probabilities are before temperature and truncation, processed ones after both.
        self._is_raw = follows.temperature == 1.0
        self._is_cpu = check_usable(shape) == "cpu"
        self._sleeps = follows.shares_device and not self._is_cpu
        self._is_asleep = False
        self._owns_group = not torch.distributed.is_initialized()
        settings: dict[str, Any] = {
            "model": recipe.weights,
            "skip_tokenizer_init": True,
            "dtype": recipe.dtype,
            "max_model_len": recipe.max_tokens,
            "logprobs_mode": "raw_logprobs" if self._is_raw else "processed_logprobs",
            # Otherwise the model's generation_config.json would bring a top_k and a temperature of its own.
            "generation_config": "vllm",
            "gpu_memory_utilization": recipe.gpu_memory_utilization,
            "enable_sleep_mode": self._sleeps,
            "use_tqdm_on_load": False,
            "disable_log_stats": True,
            "seed": 0,
        }
        if self._is_cpu:
            cache_bytes = cpu_cache_bytes(shape, recipe.max_tokens, recipe.dtype)
            settings |= {"enforce_eager": True, "kv_cache_memory_bytes": cache_bytes}
            # A prompt read in parts takes back the noise of the parts, which a CPU's generator cannot do.
            step_tokens = max(CPU_STEP_TOKENS, recipe.max_tokens)
            settings |= {"enable_chunked_prefill": False, "max_num_batched_tokens": step_tokens}
        if follows.is_distributed:
            settings["distributed_executor_backend"] = "external_launcher"
        self._llm: Any = _load(settings, is_compiled=not self._is_cpu)

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """See `engine.Engine.generate`. An eos id, a stop string, ``max_new_tokens`` or the context ends a response.

        Raises:
            DataError: a prompt fills the model's context.
            UsageError: a temperature that vLLM does not have.
            DivergedError: a log-probability is not finite.
        """
        limits = response_limits(prompts, sampling.max_new_tokens, context=self.max_model_len)
        check_temperature("temperature", sampling.temperature)
        requests = [
            (prompt, seed, limit) for prompt, group, limit in zip(prompts, seeds, limits, strict=True) for seed in group
        ]
        texts = ResponseTexts(self.tokenizer, sampling.stop)
        assert not self._is_asleep, "after `rest` there are no weights before the next `sync`"
        with process_unchanged():  # it draws from the global generator too, even where every request has a seed
            drawn = self._draw(requests, sampling, self.eos_ids, texts, progress)
        rollouts = iter([self._rollout(number, output, sampling, texts) for number, output in enumerate(drawn)])
        return [[next(rollouts) for _ in group] for group in seeds]

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Takes over the weights, forgets cached prompts and compares the probe; metrics under sync/.

        Raises:
            DivergedError: engine and policy disagree about the probe afterwards.
            MissingError: vLLM's share of the GPU's memory is no longer free.
        """
        with process_unchanged():
            self._wake("weights")
            # `load_weights` meets layers packed at load time (on a CPU linear ones); reloading unpacks and packs them.
            reload = {"weights_iterator": named_weights(), "is_checkpoint_format": True}
            self._llm.collective_rpc("reload_weights", kwargs=reload)
            self._llm.apply_model(_repack_head)
            if not self._llm.reset_prefix_cache():
                raise DivergedError("vLLM kept prompts cached under the old weights; begin again from the checkpoint")
            self._wake("kv_cache")
            self._is_asleep = False
            if self.probe is None:
                return {}
            request = (self.probe.prompt, 0, self.probe.sampling.max_new_tokens)
            texts = ResponseTexts(self.tokenizer, ())
            (output,) = self._draw([request], self.probe.sampling, (), texts, None)
        return self.probe.compare(self._rollout(0, output, self.probe.sampling, texts))

    def rest(self) -> None:
        """See `engine.Engine.rest`. vLLM gives up its weights too (level 2); `sync` brings others. Raises as `sync`."""
        if self._sleeps and not self._is_asleep:
            self._is_asleep = True
            with process_unchanged(), counted_memory("fall asleep"):
                self._llm.sleep(level=2)

    def _wake(self, tag: str) -> None:
        if self._is_asleep:
            with counted_memory("wake up"):
                self._llm.wake_up(tags=[tag])

    def close(self) -> None:
        """Frees vLLM's memory. A process group that was there before the engine stays."""
        if self._llm is None:
            return
        llm, self._llm = self._llm, None
        with contextlib.nullcontext() if self._owns_group else keeping_process_group():
            llm.llm_engine.engine_core.shutdown()

    # --- drawing ----------------------------------------------------------------------------------------------------

    def _draw(
        self,
        requests: Sequence[tuple[Prompt, int, int]],
        sampling: Sampling,
        stop_ids: Sequence[int],
        texts: ResponseTexts,
        progress: RolloutProgress | None,
    ) -> list[Any]:
        """vLLM's completion of each (prompt, seed, most tokens), in order; with stop strings a `_Streamed` of each."""
        engine = self._llm.llm_engine
        self._num_calls += 1
        number_of = {f"{self._num_calls}/{number}": number for number in range(len(requests))}
        outputs: list[Any] = [None] * len(requests)
        streamed: dict[str, _Streamed] = defaultdict(_Streamed)
        num_tokens = 0
        waiting = dict(number_of)
        try:
            for name, number in number_of.items():
                prompt, seed, limit = requests[number]
                parameters = self._parameters(number, sampling, seed, limit, stop_ids)
                engine.add_request(name, {"prompt_token_ids": list(prompt.token_ids)}, parameters)
            while waiting:
                num_before = len(waiting)
                for output in engine.step():
                    (completion,) = output.outputs
                    if sampling.stop:
                        completion = streamed[output.request_id].extended(completion, texts)
                    if completion.finish_reason is None:
                        continue
                    if not output.finished:
                        engine.abort_request([output.request_id])
                    outputs[waiting.pop(output.request_id)] = completion
                    num_tokens += len(completion.token_ids)
                if progress is not None and len(waiting) < num_before:
                    progress(len(requests) - len(waiting), num_tokens)
        finally:
            if waiting:  # interrupted: the next call must not meet what this one asked for
                engine.abort_request(list(waiting))
        return outputs

    def _parameters(self, number: int, sampling: Sampling, seed: int, limit: int, stop_ids: Sequence[int]) -> Any:
        """Of request ``number`` of a call alone: the same seed in two requests would draw the same noise in both."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=limit,
            seed=seed & MAX_SEED,
            # Our stop ids and nothing else, whatever the model's configuration says.
            ignore_eos=True,
            stop_token_ids=list(stop_ids),
            logprobs=0 if self._knows_logp(number, sampling) and sampling.temperature > 0 else None,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if sampling.stop else RequestOutputKind.FINAL_ONLY,
        )

    def _knows_logp(self, number: int, sampling: Sampling) -> bool:
        if not self.logp_every or number % self.logp_every:
            return False
        is_whole = sampling.top_p == 1.0 and sampling.top_k == 0
        return sampling.temperature in (0.0, 1.0) if self._is_raw else is_whole

    def _rollout(self, number: int, completion: Any, sampling: Sampling, texts: ResponseTexts) -> Rollout:
        ids = tuple(completion.token_ids)
        reason: FinishReason = "stop" if completion.finish_reason == "stop" else "length"
        said = ids[:-1] if reason == "stop" and ids[-1] in self.eos_ids else ids
        logp: tuple[float, ...] | None = None
        if self._knows_logp(number, sampling):
            # At temperature 0 the policy is its argmax, and surely draws it.
            logp = (0.0,) * len(ids)
            if sampling.temperature > 0:
                logp = tuple(of[id].logprob for id, of in zip(ids, completion.logprobs, strict=True))
            if not all(map(math.isfinite, logp)):
                raise DivergedError(
                    "the policy's log-probabilities are not finite while sampling; resume from an earlier "
                    "checkpoint, or lower optimizer.lr"
                )
        return Rollout(ids, texts.text(said), reason, logp)


@dataclass
class _Streamed:
    """A response as it grows, up to its stop string, under the names of vLLM's own completions."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None

    def extended(self, delta: Any, texts: ResponseTexts) -> Self:
        """Itself, with what vLLM drew next."""
        for position, id in enumerate(delta.token_ids):
            self.token_ids.append(id)
            if delta.logprobs is not None:
                self.logprobs.append(delta.logprobs[position])
            if texts.meets_stop(self.token_ids):
                self.finish_reason = "stop"
                return self
        self.finish_reason = delta.finish_reason
        return self


def check_usable(shape: Any = None) -> str:
    """The device vLLM would use here (``cpu``, ``cuda``, ...), for a model of configuration ``shape`` if given.

    Raises:
        MissingError: vLLM is not installed or cannot be imported.
        UsageError: its CPU attention does not take the model's heads.
    """
    require("vllm", "the engine vllm")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with process_unchanged():
            import vllm  # noqa: F401
            from vllm.platforms import current_platform
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise MissingError(
            f"vLLM is installed and cannot be imported ({type(error).__name__}: {reason}); `quatro doctor` says what "
            "is there, and -s rollout.engine=transformers does without it"
        ) from error
    device = str(current_platform.device_type)
    if shape is not None and device == "cpu":
        with process_unchanged():
            from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
        text, sizes = shape.get_text_config(), CPUAttentionBackend.get_supported_head_sizes()
        head_dim = attention_widths(text)[0] // text.num_attention_heads
        if head_dim not in sizes:
            raise UsageError(
                f"the model's attention heads have {head_dim} dimensions, and vLLM on a CPU takes "
                f"{', '.join(map(str, sizes))}; use the engine transformers"
            )
    return device


def cpu_cache_bytes(shape: Any, max_model_len: int, dtype: str) -> int:
    """Memory for keys and values on a CPU: `CPU_CACHE_SEQUENCES` full sequences, within `CPU_CACHE_BYTES`."""
    token_bytes = cache_token_bytes(shape.get_text_config(), getattr(torch, dtype).itemsize)
    sequence_bytes = math.ceil(max_model_len / CPU_BLOCK_TOKENS) * CPU_BLOCK_TOKENS * token_bytes
    smallest, largest = CPU_CACHE_BYTES
    return max(smallest, 2 * sequence_bytes, min(largest, CPU_CACHE_SEQUENCES * sequence_bytes))


def _load(settings: dict[str, Any], *, is_compiled: bool) -> Any:
    with process_unchanged(), counted_memory("start"):
        from vllm import LLM

        if is_compiled:
            logger.info("vLLM is compiling the model and capturing CUDA graphs: this may take minutes")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # vLLM asks what is free, and what the allocator keeps is not
        try:
            return LLM(**settings)
        except (ValueError, RuntimeError, NotImplementedError) as error:
            reason = " ".join(str(error).split())[:400]
            raise UsageError(
                f"vLLM cannot run {settings['model']} here: {type(error).__name__}: {reason}. If it is about memory, "
                "change rollout.gpu_memory_utilization; otherwise use the engine transformers"
            ) from error


def _repack_head(model: Any) -> None:
    """A head tied to the embedding keeps the copy packed from the old weights (vLLM 0.32 on CPU)."""
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)


@contextlib.contextmanager
def counted_memory(what: str) -> Iterator[None]:
    """Raises MissingError where vLLM cannot ``what`` because the GPU's memory is not as it left it: it asserts that."""
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        said = " ".join(str(error).split())[:400]
        if "memory" not in said.lower():
            raise
        raise MissingError(
            f"vLLM cannot {what}: {said} Either another process on this GPU took or freed memory (`nvidia-smi` lists "
            "them), or vLLM's share does not fit beside the policy: lower rollout.gpu_memory_utilization. A run goes "
            "on from its checkpoint with --resume"
        ) from error


@contextlib.contextmanager
def process_unchanged() -> Iterator[None]:
    """Puts back random generators, threads and environment, except vLLM's own variables.

    Warnings about the insides of other packages stay quiet.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    set_num_threads, num_threads = torch.set_num_threads, torch.get_num_threads()
    environment = dict(os.environ)
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)
        for name in os.environ.keys() | environment.keys():
            if not name.startswith("VLLM_") and os.environ.get(name) != environment.get(name):
                os.environ.pop(name, None)
                if name in environment:
                    os.environ[name] = environment[name]
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def keeping_process_group() -> contextlib.AbstractContextManager[Any]:
    """Inside, torch.distributed's default group cannot be destroyed, because the ranks still need it."""
    destroy = torch.distributed.destroy_process_group

    def destroy_others(group: Any = None) -> None:
        if group is not None:
            destroy(group)

    return mock.patch.object(torch.distributed, "destroy_process_group", destroy_others)
