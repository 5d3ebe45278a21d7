"""A part of gpu.py: the constants of a card on which the seconds of `quatro train --rehearse FILE` hang."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpu_case import Case, clock, random_model
from record import Records
from torch.utils._python_dispatch import TorchDispatchMode

from quatro.rollout.decoding import SlotModel
from quatro.rollout.kv_cache import PreallocatedCache


class Counter(TorchDispatchMode):
    """``count`` ATen calls were made inside."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def measure(case: Case) -> dict[str, float]:
    """Best of five: copies, products in two formats, a wait, and a decoding step of two rows by its calls."""
    size = 8192 if case.device.type == "cuda" else 256

    def seconds(work: Callable[[], Any]) -> float:
        found = []
        for _ in range(6):
            start = clock(case.device)
            work()
            found.append(clock(case.device) - start)
        return min(found[1:])

    numbers = torch.ones(size, 4 * size, device=case.device)
    rates = {"bandwidth": 2 * 4 * numbers.numel() / seconds(numbers.clone) / 1e12}
    for name, dtype in (("tflops", torch.bfloat16), ("float32_tflops", torch.float32)):
        matrix = torch.ones(size, size, device=case.device, dtype=dtype)
        rates[name] = 2 * size**3 / seconds(lambda matrix=matrix: matrix @ matrix) / 1e12
    model, every = random_model(case, torch.bfloat16), np.arange(2)
    with torch.inference_mode():
        slots, cache = SlotModel(model, case.device), PreallocatedCache(case.config["num_hidden_layers"], 2, 64)
        slots.prefill([[2] * 8] * 2, 0, cache)

        def step() -> None:
            slots.append(every, np.full(2, 8), every, 2, cache)

        with Counter() as counter:
            step()
        return rates | {"call_us": 1e6 * seconds(step) / counter.count, "wait_us": 1e6 * seconds(numbers[0, 0].item)}


def constants(records: Records, case: Case) -> Iterator[str]:
    """What was measured; gpu.py writes it to the file as well."""
    yield "| constant | |"
    yield "|---|---|"
    for name, value in records("constants", lambda: measure(case), about_s=30).items():
        yield f"| {name} | {value:.3g} |"
