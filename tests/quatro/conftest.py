"""What several files of this folder begin from."""

from __future__ import annotations

from pathlib import Path

import pytest

BASE = """
model: embedded:countdown
dtype: float32
method: {name: quatro, delta: 0.01}
data: {prompts: countdown, template: plain}
reward: countdown
prompts_per_step: 4
minibatch_prompts: 4
steps: 2
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A configuration file for sweeps whose training is never run."""
    path = tmp_path / "tiny.yaml"
    path.write_text(BASE, encoding="utf-8")
    return path
