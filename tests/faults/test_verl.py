"""verl that does not know our methods: said before it begins. tests/verl asks verl itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import quatro

ROOT = Path(__file__).parents[2]
MODULE = "quatro.integrations.verl.check"
# As much of verl as is asked: it knows a method, or raises as verl does.
CORE = """
known = {}
def get_adv_estimator_fn(name):
    if name not in known: raise ValueError(f"Unknown advantage estimator: {name}")
    return known[name]
get_policy_loss_fn = get_adv_estimator_fn
"""


def run_check(verl: Path, core: str | None, name: str = "quatro") -> subprocess.CompletedProcess[str]:
    if core is not None:
        folder = verl / "verl" / "trainer" / "ppo"
        folder.mkdir(parents=True)
        (folder / "core_algos.py").write_text(core, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("VERL_")}
    paths = os.pathsep.join([str(verl), str(ROOT), *sys.path])
    command = [sys.executable, "-m", MODULE, name]
    return subprocess.run(command, env={**kept, "PYTHONPATH": paths}, cwd=verl, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("core", "said"),
    [
        (None, "verl cannot be imported here"),
        (CORE, "the plug-in quatro.integrations.verl.plugin cannot be imported: "),
    ],
)
def test_fault_53_a_plug_in_that_is_not_registered_is_named_with_its_cause(tmp_path, core, said):
    ended = run_check(tmp_path, core)
    assert ended.returncode == 3, ended.stderr
    assert said in ended.stderr
    assert "this is a bug" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_fault_53_a_plug_in_that_is_registered_lets_verl_begin(tmp_path):
    ended = run_check(tmp_path, CORE + "known['quatro'] = 1\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_fault_53_a_method_that_nobody_has_is_named_with_those_that_there_are(tmp_path):
    ended = run_check(tmp_path, CORE, name="quatre")
    assert ended.returncode == 2
    assert "neither verl nor quatro has a method quatre; quatro's are quatro, quatro_" in ended.stderr


def test_fault_53_the_printed_command_asks_first():
    done = quatro("verl-command", "math-1.5b-2gpu", "-m", "gspo", "--gpus-per-node", "2")
    assert f"\npython -m {MODULE} quatro_gspo && \\\n  python -m verl.trainer.main_ppo \\\n" in done.stdout
