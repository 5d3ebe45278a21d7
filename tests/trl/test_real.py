"""QuatroTrainer on a pretrained model of 135M parameters: TRL draws, and the gradients are those of our own policy."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.real
pytest.importorskip("trl")

from quatro.config import load_config  # noqa: E402
from quatro.policy.loading import load_tokenizer  # noqa: E402
from quatro.rollout.prompts import load_sources, to_prompts  # noqa: E402
from tests.trl.test_trl import RADIUS, Ours, Recorded  # noqa: E402
from tests.trl.worker import record  # noqa: E402

# Two passes over 4 x 4 responses, each in two micro-batches: the log-ratio acts on the second.
OPTIONS = {
    "kl_radius": RADIUS,
    "beta": 0.01,
    "num_iterations": 2,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 24,
    "max_steps": 2,
    "learning_rate": 1e-5,
}


def test_both_gradients_of_a_batch_are_those_of_our_policy(started, tmp_path, record_property):
    data = load_config("smollm2").data
    prompts = to_prompts(load_sources(data)[0].problems[:4], data.template, load_tokenizer(str(started)))
    recording = record(str(started), tmp_path, prompts=[prompt.text for prompt in prompts], **OPTIONS)
    ours = Ours(Recorded([recording], OPTIONS), started, microbatch_tokens=1024)
    assert ours.log_ratio(1).abs().max() > 0.01
    for step in (0, 1):
        apart = ours.gradients_apart(step)
        record_property(f"gradients_apart_{step}", apart)
        assert apart < 1e-4, step  # rounding, of 30 layers and of batches that are padded otherwise
