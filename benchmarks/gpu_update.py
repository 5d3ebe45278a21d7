"""Parts of gpu.py: optimiser steps of all weights and of LoRA by token budget, and gradients in bfloat16.

Random weights, rollouts of random tokens with spread lengths, bfloat16 computation, float32 weights and AdamW.
Tokens are real ones, prompt and response; MFU counts the arithmetic they need (6 operations a weight and token,
causal attention, the head for responses only), not what is computed again or spent on padding. Where trl can be
imported, its loss path (padded rows in their order, fused head) takes the same step on the same rows.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from gpu_case import Case, clock, peak_gib, random_model, random_prompts, reset_peak
from record import Records

from evals.errors import MissingError
from quatro import ops
from quatro.config import Config, load_config
from quatro.loop.learn import make_objective
from quatro.policy.kinds import make_policy
from quatro.policy.rows import Rows, collate
from quatro.processes.world import World
from quatro.types import Rollout

# Dense bfloat16, in operations a second, from the makers' data sheets.
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
LORA_RANK = 32
TRL_ROWS = 8


def make_rows(case: Case, num_prompts: int, max_new_tokens: int) -> Rows:
    """Lengths uniform between a twentieth of the limit and the limit: padded/real about 1.8."""
    generator = torch.Generator().manual_seed(0)

    def rollout(length: int) -> Rollout:
        ids = torch.randint(0, case.config["vocab_size"], (length,), generator=generator).tolist()
        return Rollout(tuple(ids), "", "stop", (-12.0,) * length)

    prompts = random_prompts(case.config["vocab_size"], num_prompts, case.prompt_tokens)
    shape = (num_prompts, case.n)
    lengths = torch.randint(max(1, max_new_tokens // 20), max_new_tokens + 1, shape, generator=generator).tolist()
    groups = [[rollout(length) for length in group] for group in lengths]
    advantage_B = torch.randn(num_prompts * case.n, generator=generator, dtype=torch.float64)
    rows = collate(prompts, groups, advantage_B, max_new_tokens=max_new_tokens, device=case.device)
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


def configuration(case: Case, *overrides: str) -> Config:
    return load_config(
        "quickstart",
        overrides=[
            *("dtype=bfloat16", f"device={case.device.type}", "kl.beta=0.001", "optimizer.lr=1e-6"),
            *(f"rollout.max_new_tokens={case.max_new_tokens}", *overrides),
        ],
    )


def median_s(work: Callable[[], Any], case: Case) -> float:
    """Seconds of ``work``, which has been done once before."""
    work()
    seconds = []
    for _ in range(case.repeats):
        start = clock(case.device)
        work()
        seconds.append(clock(case.device) - start)
    return sorted(seconds)[len(seconds) // 2]


def measure_step(case: Case, budget: int, *overrides: str) -> dict[str, float]:
    """Seconds of an update and of scoring the same rows, peak memory in GiB; nothing if ``budget`` does not fit."""
    config = configuration(case, f"microbatch_tokens={budget}", *overrides)
    rows = make_rows(case, case.prompts, case.max_new_tokens)
    policy = make_policy(config, random_model(case, torch.float32), World(), None)
    objective = make_objective(config)
    found = costs(
        case,
        rows,
        update_s=lambda: policy.update(rows, objective, use_own_logp=True, need_entropy=False),
        score_s=lambda: policy.score(rows),
    )
    return found if policy.microbatch.tokens >= budget else {}


def costs(case: Case, rows: Rows, **works: Callable[[], Any]) -> dict[str, float]:
    """Seconds of each of ``works``, peak GiB, and what an update of ``rows`` is; nothing if memory runs out."""
    reset_peak(case.device)
    try:
        seconds = {name: median_s(work, case) for name, work in works.items()}
    except (MissingError, torch.OutOfMemoryError):
        return {}
    tokens = float(rows.total_length_B.sum())
    counts = {"tokens": tokens, "operations": operations(rows, case.config)}
    return seconds | counts | {"peak_gib": peak_gib(case.device)}


def cells(found: dict[str, float], *, with_mfu: bool) -> str:
    """Tokens/s of an update, its MFU where the device's peak is known, tokens/s of scoring, peak GiB."""
    if not found:
        return "out of memory | | | |"
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    peak = next((value for key, value in PEAK.items() if key in name), None)
    mfu = f"{found['operations'] / found['update_s'] / peak:.1%}" if peak and with_mfu else ""
    score = f"{found['tokens'] / found['score_s']:,.0f}" if "score_s" in found else ""
    return f"{found['tokens'] / found['update_s']:,.0f} | {mfu} | {score} | {found['peak_gib']:.1f} |"


HEAD = ("tokens/s of an update | MFU | tokens/s of scoring | peak GiB |", "---|---|---|---|")


def update(records: Records, case: Case) -> Iterator[str]:
    """All weights, without and with gradient checkpointing."""
    yield from steps(records, case, "update", "path", "quatro", case.budgets)
    if importlib.util.find_spec("trl"):
        found = records("update, trl", lambda: measure_trl(case))
        yield f"| trl | false | {TRL_ROWS} rows | {cells(found, with_mfu=True)}"


def lora(records: Records, case: Case) -> Iterator[str]:
    """An adapter alone; the frozen weights are in bfloat16 and need no gradient of theirs."""
    if importlib.util.find_spec("peft") is None:
        yield "Unmeasured: peft is not installed here."
        return
    budgets = case.budgets[-3:-1] or case.budgets[:1]
    yield from steps(records, case, "lora", "LoRA rank", str(LORA_RANK), budgets, f"policy.lora.rank={LORA_RANK}")


def steps(
    records: Records, case: Case, name: str, head: str, label: str, budgets: Sequence[int], *more: str
) -> Iterator[str]:
    """A line for each budget that fits, and for the first that does not."""
    yield f"| {head} | gradient checkpointing | micro-batch | {HEAD[0]}"
    yield f"|---|---|---|{HEAD[1]}"
    for checkpointing in ("false", "true"):
        for budget in budgets:
            overrides = (f"policy.gradient_checkpointing={checkpointing}", *more)
            found = records(f"{name}, {overrides[0]}, {budget}", partial(measure_step, case, budget, *overrides))
            yield f"| {label} | {checkpointing} | {budget} tokens | {cells(found, with_mfu=name == 'update')}"
            if not found:
                break


# --- bfloat16 against float32 ---------------------------------------------------------------------------------------


def measure_gradients(case: Case) -> dict[str, float]:
    """How far log-probabilities and the gradient of a few rows in bfloat16 are from those in float32."""
    rows = make_rows(case, 2, min(case.max_new_tokens, 512))
    model = random_model(case, torch.float32)
    logp, gradients = {}, {}
    for dtype in ("float32", "bfloat16"):
        config = configuration(case, f"dtype={dtype}", "policy.gradient_checkpointing=true", "kl.beta=0")
        policy = make_policy(config, model, World(), None)
        model.zero_grad(set_to_none=True)
        forward = policy.forward(rows, need_entropy=False)
        logp[dtype] = forward.logp_BT.detach().double()[rows.batch.mask_BT]
        batch = rows.with_batch(old_logp_BT=forward.logp_BT.detach()).batch
        ops.total_loss(make_objective(config)(forward.logp_BT, batch, None).terms).backward()
        gradients[dtype] = [weight.grad.detach().clone() for weight in model.parameters()]
    pairs = list(zip(gradients["float32"], gradients["bfloat16"], strict=True))
    norm = sum(float(exact.double().square().sum()) for exact, _ in pairs) ** 0.5
    other = sum(float(rounded.double().square().sum()) for _, rounded in pairs) ** 0.5
    apart = sum(float((exact.double() - rounded.double()).square().sum()) for exact, rounded in pairs) ** 0.5
    inner = sum(float((exact.double() * rounded.double()).sum()) for exact, rounded in pairs)
    difference = (logp["bfloat16"] - logp["float32"]).abs()
    return {
        "relative": apart / norm,
        "cosine": inner / (norm * other),
        "logp_mean": float(difference.mean()),
        "logp_max": float(difference.max()),
        "tokens": float(rows.batch.mask_BT.sum()),
    }


def gradients(records: Records, case: Case) -> Iterator[str]:
    """bfloat16 against float32, random weights."""
    found = records("gradients", lambda: measure_gradients(case))
    yield "| bfloat16 against float32 | |"
    yield "|---|---|"
    yield f"| difference of the gradients over the float32 gradient's norm | {found['relative']:.2e} |"
    yield f"| cosine of the two gradients | {found['cosine']:.6f} |"
    yield f"| log-probability of a response token, mean absolute difference in nats | {found['logp_mean']:.2e} |"
    yield f"| the largest of {found['tokens']:,.0f} | {found['logp_max']:.2e} |"


# --- TRL's loss -----------------------------------------------------------------------------------------------------


def measure_trl(case: Case) -> dict[str, float]:
    """The step of `measure_step` as GRPOTrainer computes it: rows in their order, padded to the longest of all."""
    from trl.trainer.utils import add_fused_lm_head

    rows, model = make_rows(case, case.prompts, case.max_new_tokens), random_model(case, torch.float32)
    add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    mask_BT = rows.batch.mask_BT
    width, (num_rows, num_columns) = int(rows.prompt_length_B.max()), mask_BT.shape
    ids_BL = torch.zeros((num_rows, width + num_columns), dtype=torch.long, device=case.device)
    mask_BL = torch.zeros_like(ids_BL)
    for row, (prompt, total) in enumerate(
        zip(rows.prompt_length_B.tolist(), rows.total_length_B.tolist(), strict=True)
    ):
        ids_BL[row, width - prompt : width - prompt + total] = rows.ids_BL[row, :total]
        mask_BL[row, width - prompt : width - prompt + total] = 1

    def step() -> None:
        for start in range(0, num_rows, TRL_ROWS):
            part = slice(start, start + TRL_ROWS)
            labels = ids_BL[part].masked_fill(mask_BL[part] == 0, -100)
            labels[:, :width] = -100
            with torch.autocast(case.device.type, dtype=torch.bfloat16):
                logp_BT = model(
                    input_ids=ids_BL[part],
                    attention_mask=mask_BL[part],
                    labels=labels,
                    fused_lm_head=True,
                    use_cache=False,
                ).log_probs[:, -num_columns:]
            ratio_BT = (logp_BT - logp_BT.detach()).exp()
            difference_BT = torch.where(mask_BT[part], rows.batch.old_logp_BT[part] - logp_BT, 0.0)
            kl_BT = difference_BT.clamp(-20, 20).exp() - difference_BT - 1
            loss_BT = -ratio_BT * rows.batch.advantage_B[part, None].float() + 0.001 * kl_BT
            ((loss_BT * mask_BT[part]).sum() / mask_BT.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return costs(case, rows, update_s=step)
