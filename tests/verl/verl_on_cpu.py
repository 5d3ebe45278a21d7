"""For tests: what verl 0.9.1's own trainer lacks to run on a CPU, entered into verl's tables. It is no part of quatro.

verl imports it where VERL_USE_EXTERNAL_MODULES names it. It brings

- a platform `cpu` with gloo. Ray's GPUs are logical slots of it (``ray_init.num_gpus``);
- a rollout backend `transformers`: a Ray actor a replica, which is sent whole weights through Ray's object store.
  verl's own servers (vLLM, SGLang) need an accelerator. Where VERL_RECORDED names a file of responses, a server deals
  them out, and where VERL_GRAD_NORMS names one, the gradient norm of each optimiser step is appended to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import types
from pathlib import Path
from typing import Any

import ray
import torch
import verl.utils.distributed
from torch import Tensor
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput


class _NoDevice(types.ModuleType):
    """torch.cpu, and 0 for what only an accelerator has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = {"mem_get_info": lambda *_: (0, 0), "get_device_name": lambda *_: "CPU"}
        return known.get(name) or getattr(torch.cpu, name, lambda *_, **__: 0)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One device, the CPU."""

    device_name = vendor_name = "cpu"
    device_module = _NoDevice("torch.cpu")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def nothing(self, *_: Any, **__: Any) -> None:
        return None

    set_device = synchronize = empty_cache = set_allocator_settings = nothing
    profiler_start = profiler_stop = cudart = nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False


def _begin_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
    """verl asks for "cpu:gloo,cpu:gloo", which torch refuses."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo",
            rank=int(os.environ.get("RANK", 0)),
            world_size=int(os.environ.get("WORLD_SIZE", 1)),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )


verl.utils.distributed.initialize_global_process_group_ray = _begin_gloo


def _output(ids: list[int], logp: list[float], step: int | None) -> TokenOutput:
    extra = {"global_steps": step}
    return TokenOutput(token_ids=ids, log_probs=logp, stop_reason="completed", num_preempted=0, extra_fields=extra)


class Server:
    """A copy of the policy that continues prompts, all that wait as one batch."""

    def __init__(self, config: Any, model_config: Any) -> None:
        from transformers import AutoModelForCausalLM

        path = getattr(model_config, "local_path", None) or model_config.path
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.config, self.step = config, None
        self.waiting: list[tuple[list[int], dict[str, Any], asyncio.Future[TokenOutput]]] = []
        self.lock = asyncio.Lock()
        recorded = os.environ.get("VERL_RECORDED")
        self.recorded = json.loads(Path(recorded).read_text(encoding="utf-8")) if recorded else None

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any, **_: Any) -> TokenOutput:
        if self.recorded is not None:
            ids = self.recorded[" ".join(map(str, prompt_ids))].pop(0)
            return _output(ids, [0.0] * len(ids), self.step)
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), dict(sampling_params), answer))
        await asyncio.sleep(0.05)  # the others of this batch arrive
        async with self.lock:
            batch, self.waiting = self.waiting, []
            if batch:
                outputs = self._continue([ids for ids, _, _ in batch], batch[0][1])
                for (_, _, waiter), output in zip(batch, outputs, strict=True):
                    waiter.set_result(output)
        return await answer

    @torch.no_grad()
    def _continue(self, prompts: list[list[int]], sampling: dict[str, Any]) -> list[TokenOutput]:
        stop, pad = self.model.generation_config.eos_token_id, self.model.generation_config.pad_token_id
        width = max(map(len, prompts))
        out = self.model.generate(
            torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]),
            max_new_tokens=int(sampling.get("max_tokens") or self.config.response_length),
            do_sample=True,
            temperature=float(sampling.get("temperature", 1.0)),
            top_k=0,
            top_p=1.0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        new_BT = out.sequences[:, width:]
        logits_BTV = torch.stack(out.logits, dim=1).float() / float(sampling.get("temperature", 1.0))
        logp_BT = logits_BTV.log_softmax(-1).gather(-1, new_BT[..., None]).squeeze(-1)
        outputs = []
        for ids, logp in zip(new_BT.tolist(), logp_BT.tolist(), strict=True):
            end = ids.index(stop) + 1 if stop in ids else len(ids)
            outputs.append(_output(ids[:end], logp[:end], self.step))
        return outputs

    async def load(self, weights: dict[str, Tensor], step: int | None) -> None:
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"weights of another model: {missing[:3]} missing, {unexpected[:3]} unknown")
        self.model.tie_weights()
        self.step = step

    async def nothing(self, *_: Any, **__: Any) -> None:
        return None

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    start_profile = stop_profile = abort_all_requests = resume_generation = nothing


def _write_grad_norms(path: Path) -> None:
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    step = FSDPEngine.optimizer_step

    def writing(self: Any) -> Any:
        norm = step(self)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(f"{float(norm)!r}\n")
        return norm

    FSDPEngine.optimizer_step = writing


def _server_name(rank: int) -> str:
    return f"transformers_server_{rank}"


class Replica(RolloutReplica):
    """Launches one server."""

    async def launch_servers(self) -> None:
        name = _server_name(self.replica_rank)
        remote = ray.remote(Server).options(name=name, max_concurrency=self.max_concurrency, num_cpus=0)
        self._server_handle = remote.remote(self.config, self.model_config)
        self.servers, self._server_address = [self._server_handle], name


class Adapter(BaseRollout):
    """In the trainer's process: sends new weights to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        if "VERL_GRAD_NORMS" in os.environ:
            _write_grad_norms(Path(os.environ["VERL_GRAD_NORMS"]))

    async def nothing(self, *_: Any, **__: Any) -> None:
        return None

    resume = release = nothing

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        state = {
            name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights
        }  # each rank gathers
        await ray.get_actor(_server_name(self.rank)).load.remote(state, global_steps)


RolloutReplicaRegistry.register("transformers", lambda: Replica)
_ROLLOUT_REGISTRY[("transformers", "async")] = f"{__name__}.Adapter"
