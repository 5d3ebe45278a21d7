"""Rollouts, drawn and graded: those that an iteration learns from, and those of an evaluation during training.

Those of an iteration are drawn again if dynamic sampling asks for more. An evaluation has `eval.n` samples for each
problem of each `eval.benchmark`, every `eval.every` iterations.
"""

# Axes: B rows (rollouts), Q prompts, N rollouts of a prompt.

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from evals.benchmarks.catalogue import grader_of
from evals.estimators import pass_at_k, ucc_at_k
from evals.files.strict_json import shown
from evals.results.training_metrics import BASE, EVALUATED
from quatro.config.blocks import RolloutConfig
from quatro.loop.position import Drawn, Group, Parts, Position
from quatro.ops import masked_sum
from quatro.policy.device import upload
from quatro.policy.rows import Rows, collate
from quatro.processes.stop import Stopped
from quatro.rewards import Grade, Reward, make_grader
from quatro.rollout.engine import Seeds, rollout_seed, sample_seed
from quatro.types import Needs, Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)


def draw(step: int, parts: Parts) -> tuple[Drawn, Drawn]:
    """``(rollouts to learn from, all rollouts)`` of an iteration; they differ only with dynamic sampling.

    A stop while responses are drawn puts prompts and engine back, so that a resume draws the same responses again.

    Raises Stopped if a stop was requested of any rank while responses were drawn.
    """
    position, engine = parts.stream.position, parts.engine.state()
    try:
        learnt, drawn = _draw(step, parts)
    except Stopped:
        parts.stream.position = position
        parts.engine.load_state(*engine)
        raise
    if step == 1:  # so that one sees at once what the model writes and what is rewarded
        graded = [(grade.reward, group.prompt.id, one.text) for group in drawn.groups for one, grade in group.drawn]
        for word, choose in (("best", max), ("worst", min)):
            reward, id, text = choose(graded, key=lambda one: one[0])
            logger.info("%s response of the first batch, reward %g, to %s: %s", word, reward, shown(id), shown(text))
    return learnt, drawn


def _draw(step: int, parts: Parts) -> tuple[Drawn, Drawn]:
    rollout, size = parts.config.rollout, parts.config.prompts_per_step
    if not rollout.dynamic_sampling:
        drawn = _draw_batch(step, 0, parts)
        return drawn, drawn
    kept, others, everything = list[Group](), list[Group](), list[Group]()
    for number in range(rollout.max_sampling_rounds):
        drawn = _draw_batch(step, number, parts)
        for group in drawn.groups:
            (kept if has_signal(group.rewards) else others).append(group)
        everything += drawn.groups
        if len(kept) >= size:
            break
    # Prompts without a signal hold the places that are left: the number of prompts decides minibatches and shares.
    return Drawn([*kept, *others][:size]), Drawn(everything)


def _draw_batch(step: int, number: int, parts: Parts) -> Drawn:
    config = parts.config
    parts.stopwatch.phase("prompts")
    prompts = parts.stream.next(config.prompts_per_step)
    keys = [f"{number}/{i}" if number else str(i) for i in range(len(prompts))]
    seeds = [[rollout_seed(config.seed, step, key, j) for j in range(config.rollouts_per_prompt)] for key in keys]
    return draw_and_grade(parts, prompts, seeds, parts.sampling, parts.reward)


def draw_and_grade(parts: Parts, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, reward: Reward) -> Drawn:
    """Responses to ``prompts`` and their grades; one rank draws and grades each group, and all ranks get it.

    So what is measured or decided is the same for every number of ranks. A batch of 2 million tokens takes 30 MB.
    Raises Stopped if a stop was requested of a rank before it had all its responses.
    """
    world, stop, phase, count = parts.policy.world, parts.stop, parts.stopwatch.phase, parts.stopwatch.count
    share = world.share(len(prompts))
    own_prompts = [prompts[i] for i in share]
    responses, grades, is_cut = list[list[Rollout]](), list[list[Grade]](), False
    if own_prompts:
        own_seeds = [seeds[i] for i in share]
        num_wanted = sum(map(len, own_seeds))

        def progress(num_finished: int, num_tokens: int) -> None:
            count(responses=(num_finished, num_wanted), tokens=(num_tokens, 0))
            stop.poll()

        phase("generate")
        count(responses=(0, num_wanted))
        try:
            drawn = parts.engine.generate(own_prompts, own_seeds, sampling, progress=progress)
            markers = parts.config.rollout.thinking
            responses = [
                [rollout.without_thought(markers, prompt) for rollout in group]
                for prompt, group in zip(own_prompts, drawn, strict=True)
            ]
        except Stopped:
            is_cut = True
    stop.end_of_work(is_cut=is_cut)
    phase("reward")
    if own_prompts:
        grades = reward.score(own_prompts, responses)
    shares = world.gather_objects((responses, grades), "responses and rewards")
    groups = []
    for i, prompt in enumerate(prompts):  # rank r of W had the prompts r, r + W, ...
        responses, grades = shares[i % world.size]
        place = i // world.size
        groups.append(Group(prompt, list(zip(responses[place], grades[place], strict=True))))
    return Drawn(groups)


def own_rows(drawn: Drawn, advantage_B: Tensor, parts: Parts) -> Rows:
    """The rows of every ``world.size``-th prompt, from which this rank learns; prompts are numbered as in the batch."""
    world = parts.policy.world
    share = world.share(len(drawn))
    advantage_Q = advantage_B.split([len(group.kept) for group in drawn.groups])
    rows = collate(
        [drawn.groups[i].prompt for i in share],
        [drawn.groups[i].rollouts for i in share],
        torch.cat([advantage_Q[i] for i in share]),
        max_new_tokens=parts.sampling.max_new_tokens,
        device=parts.policy.device,
    )
    if parts.config.rollout.dynamic_sampling or parts.config.rollout.mask_truncated:
        own = [learns_from(drawn.groups[i], parts.config.rollout) for i in share]
        rows = rows.with_batch(has_loss_B=upload(np.concatenate(own), parts.policy.device))
    return rows.with_batch(group_B=rows.batch.group_B * world.size + world.rank)


def learns_from(group: Group, rollout: RolloutConfig) -> list[bool]:
    """Which rollouts of a group have a loss: not one that was cut, nor any that only holds a place in the batch."""
    is_filling = rollout.dynamic_sampling and not has_signal(group.rewards)
    return [not is_filling and not (rollout.mask_truncated and one.finish_reason == "length") for one in group.rollouts]


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether dynamic sampling keeps a prompt: its rewards differ, or it has only one (verl's rule)."""
    return len(rewards) == 1 or min(rewards) != max(rewards)


def rewards_of(drawn: Drawn, needs: Needs, max_new_tokens: int) -> tuple[Tensor, Tensor]:
    """``(reward_B, group_B)`` as `Method.advantages` gets them, in float64; with the overlong penalty of ``needs``."""
    buffer = max_new_tokens // 5 if needs.overlong_buffer is None else needs.overlong_buffer
    rewards = [
        grade.reward + overlong_penalty(len(rollout.token_ids), max_new_tokens, buffer, needs.overlong_factor)
        for group in drawn.groups
        for rollout, grade in zip(group.rollouts, group.grades, strict=True)
    ]
    sizes = torch.tensor([len(group.kept) for group in drawn.groups])
    return torch.tensor(rewards, dtype=torch.float64), torch.arange(len(sizes)).repeat_interleave(sizes)


def asked_of(drawn: Drawn, needs: Needs, parts: Parts) -> dict[str, Tensor]:
    """What ``needs`` ask of the rows of all ranks besides rewards, by the keywords of `Method.advantages`.

    It is called before anything is learnt: log pi_old is the sampler's if it gave that of every response, else the
    trainer's, at the cost of a forward pass.
    """
    found = dict[str, Tensor]()
    if needs.solutions is not None:
        groups = [(one.prompt, one.rollouts, [grade.is_right for grade in one.grades]) for one in drawn.groups]
        found["solution_B"] = torch.tensor([one for group in groups for one in needs.solutions.solutions(*group)])
    if needs.old_logp:
        world, rows = parts.policy.world, own_rows(drawn, torch.zeros(len(drawn.rollouts)), parts)
        logp_BT = rows.batch.old_logp_BT
        if any(rollout.logp is None for rollout in drawn.rollouts):
            parts.stopwatch.phase("old_logp")
            logp_BT = parts.policy.score(rows).logp_BT
        own_B = masked_sum(logp_BT.double(), rows.batch.mask_BT)
        logp_B, group_B = world.gather(own_B).cpu(), world.gather(rows.batch.group_B).cpu()
        found["old_logp_B"] = logp_B[group_B.argsort(stable=True)]  # rank r of W had the prompts r, r + W, ...
        found["length_B"] = torch.tensor([len(rollout.token_ids) for rollout in drawn.rollouts])
    return found


def overlong_penalty(length: int, max_new_tokens: int, buffer: int, factor: float) -> float:
    """0 up to ``max_new_tokens - buffer`` tokens, then falling linearly to ``-factor`` at the limit (DAPO)."""
    if buffer == 0:
        return 0.0
    return min(-(length - (max_new_tokens - buffer)) / buffer * factor, 0.0)


class Evaluation:
    """Draws with the seeds of sample files, the same at every iteration, so that the points of a curve are comparable.

    `close` ends the processes of its graders.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        config = parts.config
        self.sampling = replace(parts.sampling, temperature=config.eval.temperature, top_p=config.eval.top_p, top_k=0)
        self._graders: list[Reward] = []
        self._said_zero = set[str]()
        for found, (benchmark, _) in zip(parts.evaluation_prompts, config.evaluated.values(), strict=False):
            for warning in found.warnings:
                logger.warning("%s: %s", benchmark, warning)
            # The benchmark's own grader, whatever the training reward is.
            self._graders.append(make_grader(grader_of(found.prompts[0].benchmark)))

    def close(self) -> None:
        for grader in self._graders:
            grader.close()

    def of_base(self, position: Position) -> None:
        """With `eval.at_start`, measure the model before training, unless ``position`` has it. Raises as `measured`."""
        if not self._graders or not self.parts.config.eval.at_start or position.base:
            return
        found = self.measured()
        logger.info("before training: %s", ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
        position.base = {f"{BASE}{name}": value for name, value in found.items()}

    def metrics(self, position: Position) -> dict[str, float]:
        """Metrics under eval/ if an evaluation is due after the iteration under way; after the first also under base/.

        Raises as `measured`.
        """
        found, step = dict[str, float](), position.step + 1
        if self._graders and step % self.parts.config.eval.every == 0:
            found = {f"{EVALUATED}{name}": value for name, value in self.measured().items()}
        return {**found, **position.base} if step == 1 else found

    def measured(self) -> dict[str, float]:
        """What the policy does on the benchmark; of several on each, below its name, after the mean of their Pass@1.

        Raises Stopped if a stop was requested before all samples were drawn.
        """
        asked = zip(self.parts.config.evaluated.items(), self.parts.evaluation_prompts, self._graders, strict=True)
        found = {name: self._measured(prompts.prompts, grader, n) for (name, (_, n)), prompts, grader in asked}
        if len(found) == 1:
            return next(iter(found.values()))
        each = {f"{name}/{key}": value for name, values in found.items() for key, value in values.items()}
        mean = {"pass@1": float(np.mean([one["pass@1"] for one in found.values()]))}
        if all("pass@1_se" in one for one in found.values()):
            mean["pass@1_se"] = math.hypot(*(one["pass@1_se"] for one in found.values())) / len(found)
        return mean | each

    def _measured(self, prompts: Sequence[Prompt], grader: Reward, n: int) -> dict[str, float]:
        """Of one benchmark; `distinct_correct` is UCC@n where only identical texts are the same."""
        seeds = [[sample_seed(self.parts.config.seed, p.benchmark, p.id, j) for j in range(n)] for p in prompts]
        with self.parts.stopwatch.holding("eval"):
            drawn = draw_and_grade(self.parts, prompts, seeds, self.sampling, grader)
        texts = [Counter(rollout.text for rollout, grade in one.drawn if grade.correct) for one in drawn.groups]
        passed = {k: [pass_at_k(n, right.total(), k) for right in texts] for k in (1, n)}
        distinct = [ucc_at_k(n, list(right.values()), n) for right in texts]
        prompt = prompts[0]
        if not any(distinct) and prompt.benchmark not in self._said_zero:
            self._said_zero.add(prompt.benchmark)
            name = grader_of(prompt.benchmark)
            judge = f"`{name}` (the last \\boxed{{...}} counts)" if name == "math" else f"`{name}`"
            logger.warning(
                f"evaluation: none of {n * len(prompts)} responses is correct. {prompt.benchmark} is graded by "
                f"{judge}, whatever `reward` is. The first, to {shown(prompt.id)}: {shown(drawn.rollouts[0].text)}"
            )
        return {
            **_with_error("pass@1", passed[1]),
            **_with_error(f"pass@{n}", passed[n]),
            "distinct_correct": float(np.mean(distinct)),
            "problems": float(len(prompts)),
            "n": float(n),
        }


def _with_error(name: str, values: list[float]) -> dict[str, float]:
    """The mean over problems and its standard error, which a single problem does not have."""
    found = {name: float(np.mean(values))}
    if len(values) > 1:
        found[f"{name}_se"] = float(np.std(values, ddof=1) / math.sqrt(len(values)))
    return found
