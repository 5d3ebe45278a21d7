"""One optimiser step of a model with the shape of Qwen2.5-1.5B: tokens/s, MFU and peak memory by token budget.

Random weights, rollouts of random tokens with spread lengths, bfloat16 computation, float32 weights and AdamW.
Tokens are real ones, prompt and response; MFU counts the arithmetic they need (6 operations a weight and token,
causal attention, the head for responses only), not what is computed again or spent on padding. Where trl can be
imported, its loss path (padded rows in their order, fused head) takes the same step on the same rows.

    python benchmarks/gpu_update.py --save benchmarks/results/README.md
    python benchmarks/gpu_update.py --tiny --device cpu
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from gpu_case import SHAPES, add_options, keep, peak_gib, random_model, require_device, reset_peak, synchronise

from quatro.config import load_config
from quatro.loop.objective import make_objective
from quatro.policy.local import LocalPolicy
from quatro.policy.microbatch import MicrobatchSize
from quatro.policy.rows import Rows, collate
from quatro.types import Prompt, Rollout

# Dense bfloat16, in operations a second, from the makers' data sheets.
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--prompts", type=int, default=64, help="prompts of the minibatch")
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    parser.add_argument("--budgets", type=int, nargs="+", default=[8192, 16384, 32768, 65536])
    parser.add_argument("--trl-rows", type=int, nargs="+", default=[8], help="rows of TRL's micro-batches")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    options = parser.parse_args()
    if options.tiny:
        options.prompts, options.n, options.prompt_tokens, options.max_new_tokens = 2, 4, 8, 32
        options.budgets, options.trl_rows, options.repeats = [128, 256], [4], 1
    return options


def make_rows(options: argparse.Namespace, vocabulary: int, device: torch.device) -> Rows:
    """Lengths uniform between a twentieth of the limit and the limit: padded/real about 1.8."""
    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, vocabulary, (length,), generator=generator).tolist())

    limit = options.max_new_tokens
    prompts = [Prompt("random", str(i), "", None, "", ids(options.prompt_tokens)) for i in range(options.prompts)]
    groups = []
    for _ in prompts:
        lengths = torch.randint(max(1, limit // 20), limit + 1, (options.n,), generator=generator).tolist()
        groups.append([Rollout(ids(n), "", "stop", (-12.0,) * n) for n in lengths])
    advantage_B = torch.randn(options.prompts * options.n, generator=generator, dtype=torch.float64)
    rows = collate(prompts, groups, advantage_B, max_new_tokens=limit, device=device)
    return rows.with_batch(ref_logp_BT=rows.batch.old_logp_BT)


def operations(rows: Rows, shape: dict[str, int]) -> float:
    """Forward and backward, of real tokens."""
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * shape["intermediate_size"])
    length_B = rows.total_length_B.double()
    attention = 6.0 * layers * hidden * float(length_B.square().sum())
    head = 6.0 * hidden * shape["vocab_size"] * float(rows.batch.mask_BT.sum())
    return 6.0 * weights * float(length_B.sum()) + attention + head


def measure(step: Callable[[], Any], options: argparse.Namespace, device: torch.device) -> tuple[float, float]:
    """Median seconds of a step, and peak memory in GiB."""
    step()
    reset_peak(device)
    seconds = []
    for _ in range(options.repeats):
        synchronise(device)
        start = time.perf_counter()
        step()
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2], peak_gib(device)


def trl_step(model: Any, optimizer: Any, rows: Rows, num_rows: int) -> None:
    """The GRPO loss as GRPOTrainer computes it: rows in their order, padded to the longest of all, on the right."""
    width = int(rows.prompt_length_B[0])
    mask_BL = torch.cat((torch.ones_like(rows.ids_BL[:, :width], dtype=torch.bool), rows.batch.mask_BT), dim=1)
    for start in range(0, len(rows), num_rows):
        part = slice(start, start + num_rows)
        mask_BT = rows.batch.mask_BT[part]
        labels = rows.ids_BL[part].masked_fill(~mask_BL[part], -100)
        labels[:, :width] = -100
        with torch.autocast(rows.ids_BL.device.type, dtype=torch.bfloat16):
            logp_BT = model(
                input_ids=rows.ids_BL[part],
                attention_mask=mask_BL[part].long(),
                labels=labels,
                fused_lm_head=True,
                use_cache=False,
            ).log_probs[:, -mask_BT.shape[1] :]
        ratio_BT = (logp_BT - logp_BT.detach()).exp()
        difference_BT = torch.where(mask_BT, rows.batch.old_logp_BT[part] - logp_BT, 0.0)
        kl_BT = difference_BT.clamp(-20, 20).exp() - difference_BT - 1
        loss_BT = -ratio_BT * rows.batch.advantage_B[part, None].float() + 0.001 * kl_BT
        ((loss_BT * mask_BT).sum() / rows.batch.mask_BT.sum()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    options = parse()
    device = require_device(options.device)
    name = "tiny" if options.tiny else "1.5b"
    shape = SHAPES[name]
    model = random_model(name, device, torch.float32)
    rows = make_rows(options, shape["vocab_size"], device)
    num_tokens, needed = float(rows.total_length_B.sum()), operations(rows, shape)
    fastest = next((v for k, v in PEAK.items() if device.type == "cuda" and k in torch.cuda.get_device_name()), None)
    checkpointing = str(options.gradient_checkpointing).lower()
    config = load_config(
        "quickstart",
        overrides=[
            *("dtype=bfloat16", f"device={device.type}", "kl.beta=0.001", "optimizer.lr=1e-6"),
            *(f"rollout.max_new_tokens={options.max_new_tokens}", f"policy.gradient_checkpointing={checkpointing}"),
        ],
    )
    table = ["| path | micro-batch | tokens/s | MFU | peak GiB |", "|---|---|---|---|---|"]

    def row(path: str, size: str, step: Callable[[], Any]) -> None:
        try:
            seconds, peak = measure(step, options, device)
        except torch.OutOfMemoryError:
            table.append(f"| {path} | {size} | out of memory | | |")
            return
        mfu = "" if fastest is None else f"{needed / seconds / fastest:.1%}"
        table.append(f"| {path} | {size} | {num_tokens / seconds:,.0f} | {mfu} | {peak:.1f} |")

    policy, objective = LocalPolicy(model, config), make_objective(config)
    for budget in options.budgets:
        policy.microbatch = MicrobatchSize(budget)
        row(
            "quatro",
            f"{budget} tokens",
            lambda: policy.update(rows, objective, use_own_logp=True, need_entropy=False),
        )
        if policy.microbatch.tokens < budget:
            table[-1] = f"| quatro | {budget} tokens | out of memory | | |"
            break
    if importlib.util.find_spec("trl"):
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
        for layer in policy._checkpointed:
            layer.training = True
        for num_rows in options.trl_rows:
            row("trl", f"{num_rows} rows", lambda n=num_rows: trl_step(model, policy.optimizer, rows, n))
    padded = len(rows) * float(rows.total_length_B.max()) / num_tokens
    title = (
        f"Update: {name}, {len(rows)} rollouts of at most {options.max_new_tokens} tokens, padded/real {padded:.2f}"
        f"{', gradient checkpointing' if options.gradient_checkpointing else ''}"
    )
    keep(title, table, options.save)


if __name__ == "__main__":
    main()
