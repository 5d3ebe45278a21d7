"""How sampler and trainer are compared where the sampler gives the log-probabilities of some responses only."""

import math

import pytest
import torch

from quatro.loop.progress import InnerProgress, mismatch
from quatro.policy.base import Forward, Update
from quatro.policy.rows import collate
from quatro.processes.world import World
from quatro.types import Prompt, Rollout

NAN = math.nan
PROMPTS = [Prompt("toy", f"p{i}", "", None, "", (7, 8)) for i in range(2)]
# Each second response was asked for its log-probabilities.
GROUPS = [
    [Rollout((1, 2, 3), "a", "stop", (-1.0, -2.0, -3.0)), Rollout((1,), "b", "stop")],
    [Rollout((5, 6), "c", "length", (-0.5, -0.25)), Rollout((4, 4), "d", "stop")],
]


def test_the_difference_is_that_of_the_rows_which_have_one():
    rows = collate(PROMPTS, GROUPS, torch.zeros(4), max_new_tokens=3)
    trainer_BT = torch.tensor([[-1.5, -2.0, -3.0], [-9.0, NAN, NAN], [-0.5, 0.0, NAN], [-9.0, -9.0, NAN]])
    found = mismatch(rows.batch.old_logp_BT, trainer_BT, rows.batch.mask_BT)
    differences = [-0.5, 0.0, 0.0, 0.0, 0.25]
    assert found == {
        "mismatch/dlogp_abs_mean": pytest.approx(0.15),
        "mismatch/dlogp_abs_max": 0.5,
        "mismatch/k3": pytest.approx(sum(math.exp(d) - d - 1 for d in differences) / 5),
    }


def test_without_any_row_or_with_an_unknown_number_of_the_trainer_there_is_no_difference():
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    known_BT = torch.tensor([[-1.0, -1.0], [NAN, NAN]])
    assert mismatch(torch.full((2, 2), NAN), known_BT, mask_BT) == {}
    assert mismatch(known_BT, torch.full((2, 2), NAN), mask_BT) == {}


def test_noise_before_the_first_step_is_that_of_the_rows_which_have_another_source():
    """Of the first minibatch one micro-batch alone was scored before; the update is the only source of the others."""
    rows = collate(PROMPTS[:1], GROUPS[:1], torch.zeros(2), max_new_tokens=3)
    progress = InnerProgress.begin(torch.tensor([[-1.0, -2.0, -3.0], [NAN, NAN, NAN]]))
    forward = Forward(torch.tensor([[-1.25, -2.0, -3.0], [-7.0, 0.0, 0.0]]), None)
    update = Update({}, 1.0, is_finite=True, is_applied=True, forward=forward)
    progress.note(update, rows, torch.arange(2), rows.batch.old_logp_BT, "recompute", World())
    assert progress.before == {
        "log_ratio/before_mean": -0.25,
        "log_ratio/before_std": 0.0,
        "log_ratio/before_max": 0.25,
    }
