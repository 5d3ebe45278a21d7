"""Deliberately wrong variants of the methods, the metrics and the guards against faults: `make test-mutants`.

Every mutant changes one place in a copy of the packages and runs tests on it, which must fail: those of its package, or
for a guard of `tests/faults/guards.py` those of its fault. A mutant that survives is a hole in the tests (exit code 1).
Words after the command choose mutants whose file and name hold them all; names of guards begin with `fault 07:`.
"""

# ruff: noqa: E501 (a table: one mutant a row)
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))

from guards import GUARDS, tests_by_fault  # noqa: E402

TIMEOUT_S = 900
# What needs another environment, or minutes.
ELSEWHERE = ("long", "gpu", "vllm", "deepspeed", "verl", "verl_ray", "trl", "browser", "latex", "real")
# The cheap ones first: a mutant that they catch does not reach the run that is written out by hand.
TESTS = {
    "quatro": (
        "tests/quatro/methods",
        "tests/quatro/test_ops.py",
        "tests/quatro/test_dual.py",
        "tests/quatro/test_budget.py",
        "tests/quatro/loop/test_draw.py",
        "tests/quatro/loop/test_correction.py",
        "tests/integration/test_maths.py::test_recorded_completions_move_the_weights_as_computed[made_up]",
    ),
    "evals": (
        "tests/evals/test_estimators.py",
        "tests/evals/metrics/test_flips.py",
        "tests/evals/metrics/test_comparing.py",
        "tests/evals/metrics/test_passk_ucc.py",
        "tests/evals/metrics/test_further_metrics.py",
        "tests/evals/metrics/test_beside_pass.py",
        "tests/evals/metrics/test_ceiling.py",
        "tests/quatro_cli/eval/test_same_problems.py",
        "tests/evals/test_clustering.py",
    ),
}


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    fault: int | None = None


OPS, DUAL, DRAW = "quatro/ops.py", "quatro/dual.py", "quatro/loop/draw.py"
QUATRO, GSPO, GMPO = "quatro/methods/quatro.py", "quatro/methods/gspo.py", "quatro/methods/gmpo.py"
CISPO, GPG, BASE = "quatro/methods/cispo.py", "quatro/methods/gpg.py", "quatro/methods/base.py"
TEMPERATURE = "quatro/methods/beyond_paper.py"
UCPO, CLUSTER_WEIGHTED = "quatro/methods/ucpo.py", "quatro/methods/cluster_weighted.py"
TYPES, POSITION, SUM = "quatro/types.py", "quatro/loop/position.py", "quatro/rewards/sum.py"
ESTIMATORS, BOOTSTRAP = "evals/estimators.py", "evals/intervals.py"
CLUSTERING, FLIPS, COMPARING = "evals/clustering.py", "evals/metrics/flips.py", "evals/metrics/comparing.py"
PAIRING, PASSK_UCC, COUNTING = (f"evals/metrics/{name}.py" for name in ("comparing", "passk_ucc", "counting"))
INNER, LOCAL = "quatro/loop/learn.py", "quatro/policy/torch_policy.py"
CORRECTION = "quatro/loop/correction.py"

MUTANTS = [
    Mutant("population standard deviation (ddof 0)", OPS, "(size_Q - 1).clamp(min=1)", "size_Q"),
    Mutant("z-score with epsilon 1e-4", OPS, "std_Q + 1e-6", "std_Q + 1e-4"),
    Mutant(
        "mean subtracted from a group of one", OPS, "torch.where(alone_Q[:, None], reward_QN, centred_QN)", "centred_QN"
    ),
    Mutant("no exact test for equal rewards", OPS, "torch.inf).amin(dim=1) == highest_Q) & ~alone_Q", "torch.inf).amin(dim=1) > highest_Q)"),
    Mutant("padding counts as tokens", OPS, "value_BT, mask_BT.to(value_BT.dtype)", "value_BT, torch.ones_like(value_BT)"),
    Mutant("padding enters the sequence ratio", OPS, "logp_BT - batch.old_logp_BT, 0.0)", "logp_BT - batch.old_logp_BT, 1.0)"),
    Mutant(
        "mean per micro-batch",
        OPS,
        "term.weight.sum() if weight_sum is None else weight_sum[term.name]",
        "term.weight.sum()",
    ),
    Mutant("empty rows in sequence means", OPS, "(length_B > 0).to(value_BT.dtype)", "torch.ones_like(value_BT[:, 0])"),
    Mutant("sum-norm by the batch's width", OPS, "/ batch.max_new_tokens, has", "/ (value_BT.shape[1] + 1), has"),
    Mutant(
        "hard clamp of the ratio",
        OPS,
        "return detached_B.clamp(max=log_ratio_cap(detached_B, max_log_ratio)).exp() * (1.0 + log_ratio_B - detached_B)",
        "return log_ratio_B.clamp(max=log_ratio_cap(detached_B, max_log_ratio)).exp()",
    ),
    Mutant("optimistic clip", OPS, "return torch.maximum(plain, clipped)", "return torch.minimum(plain, clipped)"),
    Mutant("upper clip range ignored", OPS, "1.0 + clip_high) * advantage", "1.0 + clip_low) * advantage"),
    Mutant("no dual clip", BASE, "if self.dual_clip is not None:", "if False:"),
    Mutant(
        "dual clip for positive advantages too",
        BASE,
        "torch.where(advantage_B1 < 0, torch.minimum(value_BT, bound_B1), value_BT)",
        "torch.minimum(value_BT, bound_B1)",
    ),
    Mutant("k3 with the sign turned", OPS, "d_BT = (-difference_BT)", "d_BT = (difference_BT)"),
    Mutant("k3 without its clamp", OPS, ".clamp(-20.0, 20.0)\n    return (d_BT", "\n    return (d_BT"),
    Mutant("k3+ with the gradient of k3", OPS, "k2_BT + (k3(difference_BT) - k2_BT).detach()", "k3(difference_BT)"),
    Mutant("sequence KL with its weight attached", OPS, "difference_BT.sum(dim=-1).detach()", "difference_BT.sum(dim=-1)"),
    Mutant("entropy as a penalty", OPS, "aggregate(-entropy_BT,", "aggregate(entropy_BT,"),
    Mutant("GSPO's ratio attached", GSPO, "batch.mask_BT).detach()", "batch.mask_BT)"),
    Mutant("GSPO's ratio not normalised by length", GSPO, "ops.masked_mean(ops.log", "ops.masked_sum(ops.log"),
    Mutant("QUATRO normalised by length", QUATRO, 'self.ratio == "length-normalised"', 'self.ratio == "sequence"'),
    Mutant("QUATRO's stabiliser attached", QUATRO, '"detached": log_ratio_B.detach()', '"detached": log_ratio_B'),
    Mutant("QUATRO's stabiliser with the sign turned", QUATRO, "(advantage_B - stabiliser_B)", "(advantage_B + stabiliser_B)"),
    Mutant("QUATRO without its stabiliser", QUATRO, "(advantage_B - stabiliser_B)", "advantage_B"),
    Mutant(
        "QUATRO drops degenerate groups",
        QUATRO,
        "weight_B = torch.ones_like(value_B)\n",
        "weight_B = (batch.advantage_B != 0).to(value_B.dtype)\n",
    ),
    Mutant(
        "QUATRO averaged over tokens",
        QUATRO,
        "weight_B = torch.ones_like(value_B)\n",
        "weight_B = batch.mask_BT.sum(-1).to(value_B.dtype)\n",
    ),
    Mutant("loss_norm sum is rows", QUATRO, 'self.loss_norm == "sum"', 'self.loss_norm == "never"'),
    Mutant("dual with a sum in place of the mean", DUAL, "(p_NQ * weight_NQ).sum(axis=0) / size_Q", "(p_NQ * weight_NQ).sum(axis=0)"),
    Mutant("dual in single precision", DUAL, "_TOLERANCE = 1e-13", "_TOLERANCE = 1e-6"),
    Mutant("dual without its cap", DUAL, "np.minimum(delta_Q, boundary_cap * rewards.limit_Q)", "delta_Q"),
    Mutant("budget without its cap", DUAL, "np.minimum(scale_Q * tau, cap_Q)", "scale_Q * tau"),
    Mutant("budget over prompts without a signal too", DUAL, "gap = kl_Q.mean() / delta - 1.0", "gap = kl_Q.mean() / delta - 0.9"),
    Mutant("centred by the padded width", QUATRO, "mask_QN.sum(dim=1, keepdim=True)", "mask_QN.shape[1]"),
    Mutant("dual over padding", DUAL, "else mask_NQ.astype(np.float64)", "else np.ones_like(z_NQ)"),
    Mutant("GMPO clips the ratio, not its log", GMPO, "log_ratio_BT.clamp(-self.clip_low, self.clip_high)", "log_ratio_BT.exp().clamp(1 - self.clip_low, 1 + self.clip_high).log()"),
    Mutant("GMPO with an arithmetic mean", GMPO, "ops.masked_mean(pessimistic_BT, mask_BT).exp()", "ops.masked_mean(pessimistic_BT.exp(), mask_BT)"),
    Mutant("GMPO clips whatever the sign", GMPO, "sign_B1 * torch.minimum(sign_B1 * log_ratio_BT, sign_B1 * bounded_BT)", "bounded_BT"),
    Mutant("GMPO leaves empty rows out", GMPO, '"policy", value_B, torch.ones_like(value_B)', '"policy", value_B, mask_BT.any(-1).to(value_B.dtype)'),
    Mutant("CISPO with the ratio attached", CISPO, "batch).detach().clamp(-20", "batch).clamp(-20"),
    Mutant("CISPO without its clip", CISPO, "value_BT = -clipped_BT", "value_BT = -ratio_BT"),
    Mutant("GPG without alpha", GPG, "value_B = alpha * group_zscore", "value_B = group_zscore"),
    Mutant("GPG's alpha from correct answers only", GPG, "(reward_B != 0).sum()", "(reward_B == 1).sum()"),
    Mutant("z-score with the sample's deviation", TEMPERATURE, "mean(centred_QN.square()).sqrt()", "(centred_QN.square().sum(dim=1) / (size_Q - 1)).sqrt()"),
    Mutant("padding enters the temperature", TEMPERATURE, "torch.where(mask_QN, value_QN, 0.0).sum(dim=1)", "value_QN.sum(dim=1)"),
    Mutant("RLOO with the group's mean", OPS, "scale_Q * (size_Q - 1) / size_Q", "scale_Q"),
    Mutant("rewards may be NaN", "quatro/ops.py", "if not bool(torch.isfinite(reward_B).all()):", "if False:"),
    Mutant("the KL without success takes e^A for a policy", "quatro/loop/metrics.py", "A_N - A_N.exp().mean().log() for", "A_N for"),
    Mutant("dynamic sampling drops single responses", DRAW, "len(rewards) == 1 or ", ""),
    Mutant("UCPO by whole log-probabilities", UCPO, "old_logp_B / length_B.clamp(min=1)", "old_logp_B"),
    Mutant("UCPO without a floor under q", UCPO, ".clamp(min=1e-6)\n", "\n"),
    Mutant("UCPO by likelihood in place of rarity", UCPO, "1.0 / mean_B[rows_M].softmax(dim=0).clamp(min=1e-6)", "mean_B[rows_M].softmax(dim=0)"),
    Mutant("UCPO over wrong responses too", UCPO, "((group_B == group) & (reward_B > 0))", "(group_B == group)"),
    Mutant("UCPO that raises the sum of advantages", UCPO, "1.0 - self.tau + self.tau", "1.0 + self.tau"),
    Mutant("a response differs from itself", TYPES, "(times[one] - 1) / others", "times[one] / others"),
    Mutant("rarity among all responses", TYPES, "Counter(one for one in solutions if one >= 0)", "Counter(solutions)"),
    Mutant("the only correct response is not rare", TYPES, "if one >= 0 and others else 1.0", "if one >= 0 and others else 0.0"),
    Mutant("wrong responses have solutions", TYPES, "next(labels) if one else -1", "next(labels) if one else 0"),
    Mutant("another threshold than eval's", TYPES, "thresholds = None if self.threshold is None else [self.threshold]", "thresholds = None"),
    Mutant("rarity across prompts", CLUSTER_WEIGHTED, "rows_M = (group_B == group).nonzero()[:, 0]", "rows_M = (group_B >= 0).nonzero()[:, 0]"),
    Mutant("cluster weights as z-scores", CLUSTER_WEIGHTED, "standardise=False", "standardise=True"),
    Mutant("solutions counted across prompts", CLUSTER_WEIGHTED, "torch.stack([group_B, solution_B])", "torch.stack([solution_B, solution_B])"),
    Mutant("old log-probabilities rank after rank", DRAW, "logp_B[group_B.argsort(stable=True)]", "logp_B"),
    Mutant("the sampler's log-probabilities though some are missing", DRAW, "if any(rollout.logp is None", "if all(rollout.logp is None"),
    Mutant("what a method asks is not saved", POSITION, ', asked=below(tensors, "asked/")', ""),
    Mutant("the reward rarity rewards what is common", SUM, "reward=grade.reward * share", "reward=grade.reward * (1 - share)"),
    Mutant("what holds a place in a batch is learnt from", DRAW, "rollout.dynamic_sampling and not has_signal(group.rewards)", "False"),
    Mutant("rows without a loss keep their weight", OPS, "has_loss_B if term.weight.ndim == 1 else has_loss_B[:, None]", "has_loss_B.any()"),
    Mutant("a weight above the cap stays", CORRECTION, "weight > correction.cap", "weight > 1e30"),
    Mutant("a masked weight becomes the cap", CORRECTION, 'if correction.kind == "truncate" else 0.0', "if True else 0.0"),
    Mutant("weights of responses as means of tokens", CORRECTION, "log_weight.sum(dim=-1, keepdim=True)", "log_weight.mean(dim=-1, keepdim=True)"),
    Mutant("weights the wrong way round", CORRECTION, "old_logp_BT.double() - sampler_logp_BT.double()", "sampler_logp_BT.double() - old_logp_BT.double()"),
    Mutant("the gradient without its weight", CORRECTION, "weight.to(logp_BT.dtype) * (logp_BT - held_BT)", "(logp_BT - held_BT)"),
    Mutant("the loss without its weights", INNER, "loss = method.loss(learnt_BT, batch)", "loss = method.loss(logp_BT, batch)"),
    Mutant("overlong penalty also rewards", DRAW, "factor, 0.0)", "factor, 1.0)"),
    Mutant("KL to the reference left out", INNER, "if kl.beta > 0:", "if False:"),
    Mutant("log pi_old taken anew at each step", INNER, "use_own_logp=progress.num_applied == 0", "use_own_logp=True"),
    Mutant("log pi_old of the minibatch after a step taken anew", INNER, "use_own_logp=progress.num_applied == 0", "use_own_logp=progress.num_passes == 0"),
    Mutant("gradients not clipped", LOCAL, "clip_grad_norm_(self.trained, self.max_grad_norm)", "clip_grad_norm_(self.trained, torch.inf)"),
    Mutant("no weight decay", LOCAL, "weight_decay=settings.weight_decay", "weight_decay=0.0"),
    Mutant("gradients of the step before not forgotten", LOCAL, "self.optimizer.zero_grad(set_to_none=True)", "pass"),
    Mutant("pass@k of draws with replacement", ESTIMATORS, "np.minimum(k_K1 / left_S, 1.0)", "k_K1 / n"),
    Mutant("one draw too many", ESTIMATORS, "left_S = np.arange(n, 0, -1,", "left_S = np.arange(n + 1, 1, -1,"),
    Mutant("a share near 1 by subtraction", ESTIMATORS, "return -np.expm1(_log_fail_table(n, tuple(ks)))", "return 1.0 - np.exp(_log_fail_table(n, tuple(ks)))"),
    Mutant("UCR counts empty clusters", ESTIMATORS, "sum(size > 0 for size in sizes) / n", "len(sizes) / n"),
    Mutant("UCR per correct answer", ESTIMATORS, "sum(size > 0 for size in sizes) / n", "sum(size > 0 for size in sizes) / max(1, sum(sizes))"),
    Mutant("pass@k of many problems by the first n", ESTIMATORS, "hit_table(index(n), ks)", "hit_table(index(n_P[0]), ks)"),
    Mutant("UCC@k as a mean over clusters", ESTIMATORS, "math.fsum(hit_J) for", "math.fsum(hit_J) / max(1, len(hit_J)) for"),
    Mutant("G-Pass asks for more than the share", ESTIMATORS, "math.ceil(tau * k - 1e-9)", "math.floor(tau * k) + 1"),
    Mutant("G-Pass rounds 0.1 * 30 up", ESTIMATORS, "tau * k - 1e-9", "tau * k"),
    Mutant("G-Pass of 0 is met by nothing", ESTIMATORS, "max(1, math.ceil(", "max(0, math.ceil("),
    Mutant("majority: a tie is a win", ESTIMATORS, "(1 / np.arange(1, len(kept_TK) + 1))", "np.ones(len(kept_TK))"),
    Mutant("majority: a tie is lost", ESTIMATORS, "kept_TK[:, k - votes] @ (1 / np.arange(1, len(kept_TK) + 1))", "kept_TK[0, k - votes]"),
    Mutant("majority: silence votes", ESTIMATORS, "if size >= votes]", "if size > votes]"),
    Mutant("majority: not given that k are kept", ESTIMATORS, "won / float(_binomial(n, keep, k)[k])", "won"),
    Mutant("effective number of the plain shares", ESTIMATORS, "size_J / c * (1 - min(tuple(sizes).count(1), c - 1) / c)", "size_J / c"),
    Mutant("effective number not weighted by the chance to be met", ESTIMATORS, " / (1 - (1 - share_J) ** c)).sum()", ").sum()"),
    Mutant("pairs with replacement", ESTIMATORS, "size * (size - 1) for size in sizes) / (c * (c - 1))", "size * size for size in sizes) / (c * c)"),
    Mutant("coverage by clusters", ESTIMATORS, "tuple(sizes).count(1) / c", "tuple(sizes).count(1) / len(sizes)"),
    Mutant("parts in one order only", ESTIMATORS, "reach_2M * add_2M.mean(axis=0)", "reach_2M * add_2M[0]"),
    Mutant("parts: exactly m correct", ESTIMATORS, "np.cumsum(exactly_M[::-1])[::-1]", "np.array(exactly_M)"),
    Mutant("the threshold itself is too far (greedy)", CLUSTERING, "similarity_UU >= threshold", "similarity_UU > threshold"),
    Mutant("the threshold itself is too far (complete, average)", CLUSTERING, "upper_UU[i, j] < threshold", "upper_UU[i, j] <= threshold"),
    Mutant("complete is single linkage", CLUSTERING, "np.minimum(one_U", "np.maximum(one_U"),
    Mutant("average of averages", CLUSTERING, "(size_U[i] * one_U + size_U[j] * other_U) / (size_U[i] + size_U[j])", "(one_U + other_U) / 2"),
    Mutant("average over different texts", CLUSTERING, "size_U = count_U.astype(np.float64)", "size_U = np.ones(len(count_U))"),
    Mutant("a merged cluster keeps its size", CLUSTERING, "size_U[i] += size_U[j]", "pass"),
    Mutant("greedy in the order of the alphabet", CLUSTERING, "order=list(dict.fromkeys(unique.which_N.tolist()))", "order=list(range(len(unique.texts)))"),
    Mutant("greedy joins the last leader", CLUSTERING, "for leader in leaders if", "for leader in reversed(leaders) if"),
    Mutant("greedy makes every text a leader", CLUSTERING, "        label_U[text] = leader", "        leaders.append(text)\n        label_U[text] = leader"),
    Mutant("clusters of different texts, not of samples", CLUSTERING, "label_U[unique.which_N])\n\n\ndef resolve", "label_U)\n\n\ndef resolve"),
    Mutant("labels as they come", CLUSTERING, "number.setdefault(int(label), len(number))", "int(label)"),
    Mutant("sizes rising", CLUSTERING, "reverse=True)) if len(labels)", "reverse=False)) if len(labels)"),
    Mutant("the default threshold of tfidf", "evals/similarity/similarities.toml", "threshold = 0.90", "threshold = 0.80"),
    Mutant("thresholds share what lower ones connected", CLUSTERING, "is not None}, reverse=True)", "is not None})"),
    Mutant("buckets one problem wider", FLIPS, "256 * correct <= upto * n", "256 * correct <= upto * n + 256"),
    Mutant("buckets by count, not by share", FLIPS, "256 * correct <= upto * n", "correct <= upto"),
    Mutant("flip@k: the base succeeds", FLIPS, "fail_table(n, [k])[0, base_correct]", "hit_table(n, [k])[0, base_correct]"),
    Mutant("flip@k: the tuned policy fails", FLIPS, "* hit_table(n, [k])[0, tuned_correct]", "* fail_table(n, [k])[0, tuned_correct]"),
    Mutant("flips among all problems", FLIPS, "one.base == 0 if metric == FLIP", "True if metric == FLIP"),
    Mutant("flips counted as solved by all samples", FLIPS, "float(one.tuned > 0)", "float(one.tuned == one.n)"),
    Mutant("flips: a mean over some benchmarks passes for all", FLIPS, "is_averaged = {pair.benchmark for pair in pairs} == set(groups)", "is_averaged = True"),
    Mutant("flips: 8 draws", FLIPS, "DEFAULT_K = 16", "DEFAULT_K = 8"),
    Mutant("difference a - b", BOOTSTRAP, "differences = [b_SPK - a_SPK for", "differences = [a_SPK - b_SPK for"),
    Mutant("one-sided p", BOOTSTRAP, "p = 2 * float(stdtr(", "p = float(stdtr("),
    Mutant("no room for what was not drawn", BOOTSTRAP, "min(low, seen * found.mean)", "low"),
    Mutant("few problems as sure as many", BOOTSTRAP, "num_moved < FEWEST_MOVED", "num_moved < 0"),
    Mutant("p not adjusted step by step", BOOTSTRAP, "np.maximum.accumulate(factor", "(factor"),
    Mutant("families drawn apart", BOOTSTRAP, "np.bincount(one, value_P", "np.bincount(np.arange(len(one)), value_P"),
    Mutant("the average pools the problems", PASSK_UCC, "fmean(map(fmean, column)) for", "fmean(value for part in column for value in part) for"),
    Mutant("compared with more problems on one side", COUNTING, "every = {**first, **own}", "every = first"),
    Mutant("compared at different n", COUNTING, "if first.get(one) != own.get(one)]", "if (one in first) != (one in own)]"),
    Mutant("the sides' means swapped", COMPARING, "means_of(values_a), means_of(values_b), differences", "means_of(values_b), means_of(values_a), differences"),
    Mutant("warnings of one side", COMPARING, "told_of_sides(*own, names=both)", "told_of_sides(own[0], [], names=both)"),
    Mutant("problems of one id are the same ones", PAIRING, "if str(one.answer) != str(other.answer)]", "if False]"),
    Mutant("prompts that changed places are templates", PAIRING, "bool(one.prompt and (other.benchmark", "bool(False and (other.benchmark"),
    Mutant("90 % intervals of equal scores", BOOTSTRAP, "0.025 **", "0.05 **"),
    Mutant("equal scores are those of one benchmark", BOOTSTRAP, "> 1 else len(tables)", "> 1 else 1"),
    Mutant("votes of one spelling only", "evals/metrics/counting.py", "return bool(same_answer(one, other, policy=policy) or", "return bool(one == other and"),
    Mutant("distinct@k over other problems for each k", PASSK_UCC, "if k <= largest[one.benchmark] <= least[one[:2]]]", "if k <= least[one[:2]]]"),
    Mutant("pairs over the problems of one side", PASSK_UCC, "if least[problem[:2]] > 1]", "if problem.correct > 1]"),
]  # fmt: skip


MUTANTS += [Mutant(f"fault {one.fault:02d}: {one.name}", one.file, one.old, one.new, one.fault) for one in GUARDS]


def main() -> int:
    chosen = [mutant for mutant in MUTANTS if all(word in f"{mutant.file} {mutant.name}" for word in sys.argv[1:])]
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        for folder in ("evals", "quatro", "quatro_cli", "configs", "docs", "tests"):  # tests run the methods of pages
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for tests in {_tests(copy, mutant) for mutant in chosen}:
            if _fails(copy, tests):
                sys.stderr.write(f"{', '.join(tests)}: a test fails without any mutation\n")
                return 1
        for mutant in chosen:
            path = copy / mutant.file
            text = path.read_text(encoding="utf-8")
            if text.count(mutant.old) == 0:
                sys.stderr.write(f"{mutant.name}: its text is no longer in {mutant.file}\n")
                survivors.append(mutant.name)
                continue
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            is_caught = _fails(copy, _tests(copy, mutant))
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{'caught  ' if is_caught else 'SURVIVED'}  {mutant.name}\n")
            sys.stdout.flush()
            if not is_caught:
                survivors.append(mutant.name)
    sys.stdout.write(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught\n")
    return 1 if survivors else 0


def _tests(copy: Path, mutant: Mutant) -> tuple[str, ...]:
    if mutant.fault is None:
        return TESTS[mutant.file.split("/")[0]]
    tests = tests_by_fault(copy / "tests")[mutant.fault]
    return tuple(test for test in tests if Path(test.partition("::")[0]).parent.name not in ELSEWHERE)


def _fails(copy: Path, tests: Sequence[str]) -> bool:
    marks = " and ".join(f"not {mark}" for mark in ELSEWHERE)
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, *tests],
            cwd=copy,
            # Ranks that wait for one that a mutant lost do so for a minute, not for half an hour.
            env={**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "QUATRO_RANK_TIMEOUT_S": "60"},
            capture_output=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return True  # what never ends is noticed too
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
