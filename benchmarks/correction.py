"""Bias and spread of the policy gradient where a policy in bfloat16 draws for a trainer in float32.

    python benchmarks/correction.py CONFIG [KEY=VALUE]...     # rollout.engine=vllm prompts_per_step=128 ...

Half of the prompts give a direction, their gradient's. Of the others x = A sum_t w_t (d log pi_t along it), by central
differences. The weights of whole responses have no bias without a cap: the reference. Bias: the mean difference to it
over prompts and its standard error, in shares of its mean. Spread: sd over prompts, as a share of that without weights.
"""

import sys
import tempfile
from pathlib import Path

import torch

from quatro.config import load_config
from quatro.config.blocks import CorrectionConfig
from quatro.launch.saving import restore
from quatro.loop.correction import correction_metrics, importance_weights
from quatro.loop.draw import draw, own_rows, rewards_of
from quatro.ops import masked_sum
from quatro.processes.world import World
from quatro.runs.directory import RunDir

STEP = 1e-3  # the length of a move of all weights together
NEEDED = ("kl.beta=0", "eval.every=0", "rollout.correction.level=token")  # so the engine gives every log-probability
KINDS = [{"level": one, "cap": 1e9} for one in ("sequence", "token")]
KINDS += [{"level": one, "kind": kind} for one in ("sequence", "token") for kind in ("truncate", "mask")]
parts, folder = [], tempfile.TemporaryDirectory()
for dtype, more in (("bfloat16", ()), ("float32", ("rollout.engine=transformers",))):
    config = load_config(sys.argv[1], overrides=[*sys.argv[2:], *more, *NEEDED, f"dtype={dtype}"])
    parts.append(restore(config, RunDir.create(Path(folder.name) / dtype, config), World())[0])
sampler, trainer = parts
policy, method, size = trainer.policy, config.method, config.rollouts_per_prompt
sampler.engine.sync(sampler.policy.named_weights)
learnt, _ = draw(1, sampler)
advantages = method.advantages(*rewards_of(learnt, method.needs, config.rollout.max_new_tokens))
rows = own_rows(learnt, advantages.value_B, trainer)
first, rest = (rows.select(index) for index in rows.minibatches(len(learnt) // 2))
for part in (first.select(micro) for micro in policy.microbatches(first)):
    logp_BT = policy.forward(part, need_entropy=False).logp_BT
    (part.batch.advantage_B * masked_sum(logp_BT, part.batch.mask_BT)).sum().backward()
length = torch.stack([one.grad.norm() for one in policy.trained]).norm().item()
scored = []
for move in (0.0, STEP, -2.0 * STEP):
    for weight in policy.trained:
        weight.data.add_(weight.grad, alpha=move / length)
    scored.append(policy.score(rest).logp_BT.double())
known = (scored[0], rest.batch.old_logp_BT, rest.batch.mask_BT)
slope_BT = rest.batch.advantage_B[:, None] * (scored[1] - scored[2]) / (2.0 * STEP)
corrections = [CorrectionConfig.model_validate(one) for one in KINDS]
x = {"no weights": slope_BT} | {str(one): slope_BT * importance_weights(one, *known)[0] for one in corrections}
x = {name: masked_sum(one, known[2]).reshape(-1, size).mean(dim=1) for name, one in x.items()}
reference_Q, root = x[str(corrections[0])], (len(rest) / size) ** 0.5
sys.stdout.write(f"x {reference_Q.mean():.3g} +- {reference_Q.std() / root:.2g}; {int(known[2].sum())} tokens\n")
for (name, x_Q), one in zip(x.items(), [None, *corrections], strict=True):
    bias_Q, spread = (x_Q - reference_Q) / reference_Q.mean(), x_Q.std() / x["no weights"].std()
    sys.stdout.write(f"{name}: bias {bias_Q.mean():+.2%} +- {bias_Q.std() / root:.2%}, spread {spread:.4f}")
    counts = correction_metrics(one, *known, World()).items() if one else ()
    sys.stdout.write("".join(f", {key} {value:.3g}" for key, value in counts) + "\n")
