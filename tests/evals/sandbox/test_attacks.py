"""Programs that cheat, break out or stay: none passes, reaches anything or leaves a trace."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evals.sandbox import Sandbox, probe

HOSTILE = Path(os.environ.get("QUATRO_HOSTILE", "-")) / "programs.jsonl"
ROOT = Path(__file__).parents[3]
NOBODY = 65534
hostile_file = pytest.mark.skipif(not HOSTILE.exists(), reason="QUATRO_HOSTILE names no folder of hostile programs")


def test_quick_attacks_fail(sandbox, attacks):
    assert attacks.run(sandbox, [name for name in [*attacks.FAKES, *attacks.ACTS] if name not in attacks.SLOW]) == {}


@pytest.mark.slow
def test_all_attacks_fail_in_each_tier(each_tier, attacks):
    assert attacks.run(each_tier, [*attacks.FAKES, *attacks.ACTS]) == {}


@pytest.mark.slow
@hostile_file
def test_hostile_programs_in_each_tier(each_tier, attacks):
    assert attacks.run_hostile(each_tier, HOSTILE) == {}


@pytest.mark.parametrize("tier", ["full", "landlock+seccomp"])
def test_nothing_of_earlier_programs_or_of_tests_lies_in_a_programs_memory(attacks, tier):
    faults = probe().faults(tier)
    if faults:
        pytest.skip(f"the tier {tier} is not available here: {faults}")
    with Sandbox(tier=tier, workers=1) as sandbox:
        assert attacks.spilt(sandbox) == []


def test_a_program_does_find_what_lies_in_its_memory(judge, attacks):
    """Otherwise the search would prove nothing."""
    secret = f"{0xABCD << 48:016x}"
    program = f"{attacks.SEARCH}\nkept = 'spilt:{secret}'\nfreed = bytearray(b'spilt:{secret}' * 9)\ndel freed"
    assert judge(program, f"assert search() == ['{secret}']", timeout_s=20.0).status == "pass"


def test_the_attacks_that_act_are_right_programs(judge, attacks):
    """Otherwise their failing would say nothing about what they try."""
    tests = attacks.Asserts(code=[attacks.CHECK], entry_point="add")
    assert judge(attacks.acting("pass"), tests).status == "pass"


def test_traces_are_noticed(attacks):
    with attacks.surroundings() as around:
        assert around.traces() == ""
        around.canary.write_text("changed")
        assert around.traces() == "changed a file"


def ordinary_user() -> list[str]:
    """A command that runs Python as an ordinary user who can read this checkout; skips where there is none."""
    if os.geteuid() != 0:
        pytest.skip("these tests run as an ordinary user already")
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    check = "import os, sys, evals.sandbox; assert sys.version_info >= (3, 11) and os.access(sys.executable, os.X_OK)"
    env = {"PYTHONPATH": str(ROOT)}
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        command = [*become, str(python), "-B"]
        if python and subprocess.run([*command, "-c", check], cwd="/", env=env, capture_output=True).returncode == 0:
            return command
    pytest.skip("an ordinary user can read no Python 3.11 or not this checkout")


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["full", "landlock+seccomp"])
def test_all_attacks_fail_for_an_ordinary_user(tier):
    command = ordinary_user()
    env = {"PYTHONPATH": str(ROOT)}
    ask = f"from evals.sandbox import probe; print(probe().faults({tier!r}))"
    faults = subprocess.run([*command, "-c", ask], cwd="/", env=env, capture_output=True, text=True, check=True).stdout
    if faults.strip() != "[]":
        pytest.skip(f"the tier {tier} is not available to an ordinary user here: {faults}")
    files = [str(HOSTILE)] if HOSTILE.exists() else []
    script = str(Path(__file__).parent / "attacks.py")
    done = subprocess.run(
        [*command, script, tier, *files], cwd="/", env=env, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


@pytest.mark.slow
@pytest.mark.skipif(probe().name == "none", reason="no isolation here")
def test_verdicts_are_the_same_on_an_overloaded_machine(attacks):
    """Eight processes that spin leave each program a fraction of a processor; CPU time decides all the same."""
    busy = "def add(a, b):\n    import time\n    while time.process_time() < {}: pass\n    return a + b"
    programs = [
        busy.format(0.3),
        busy.format(0.9),
        "import time\ndef add(a, b):\n    time.sleep(0.3)\n    return a + b",
    ]
    tests = attacks.Asserts(code=["assert add(1, 2) == 3"])
    jobs = [attacks.Job(program=one, tests=tests, limits=attacks.Limits(timeout_s=0.6)) for one in programs * 2]
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        with Sandbox() as sandbox:
            found = [verdict.status for verdict in sandbox.run(jobs)]
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert found == ["pass", "timeout", "pass"] * 2
