"""Isolation is found out by trying; where there is none, nothing runs unless asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evals.sandbox import Asserts, Check, IsolationError, Job, Sandbox, Tier, pool, probe, tiers


def tried(acts: dict) -> dict[str, str]:
    """What each act gives where nothing holds it back."""
    return {name: tiers._in_process(lambda: None, act, is_refused) for name, (act, is_refused) in acts.items()}


@pytest.mark.slow
def test_without_a_layer_the_probe_says_so(tmp_path):
    """Each act that a layer must refuse is possible without it, or the probe would prove nothing."""
    secret, work = tmp_path / "secret", tmp_path / "work"
    work.mkdir()
    secret.write_text("secret")
    faults = {}
    for name, (act, is_refused) in tiers._landlock_acts(secret, work).items():
        secret.write_text("secret")
        faults[name] = tiers._in_process(lambda: None, act, is_refused)
    assert {name for name, fault in faults.items() if not fault} == {"write in the working folder", "import a module"}
    allowed = tried(tiers._seccomp_acts(secret))
    assert "status 0" in allowed.pop("run a program")
    assert allowed.pop("leave its namespaces") in ("it was allowed", "")  # not every machine allows it
    assert set(allowed.values()) <= {"it was allowed", ""}
    assert {name for name, fault in allowed.items() if not fault} == {"open a pair of sockets", "start a thread"}
    limits = tiers._limits_acts()
    assert tried({name: limits[name] for name in ("take more memory", "write more to a file")}) == {
        "take more memory": "it was allowed",
        "write more to a file": "it was allowed",
    }


def test_an_act_that_a_layer_breaks_is_a_fault():
    def refused() -> None:
        raise PermissionError("no")

    assert tried({"harmless": (refused, False), "hangs up": (lambda: os._exit(3), True)}) == {
        "harmless": "it was refused: no",
        "hangs up": "its process ended with status 3",
    }


def test_a_tier_needs_all_of_its_layers():
    found = Tier("none", (Check("landlock", "read", "it was allowed"), Check("namespaces", "connect", "")))
    assert found.faults("full") == ["landlock: read: it was allowed"]
    assert found.faults("none") == []
    assert {check.layer for check in probe().checks} == {"limits", "landlock", "seccomp", "namespaces"}


def test_without_isolation_nothing_runs_unless_asked_for(monkeypatch):
    monkeypatch.setattr(pool, "probe", lambda: Tier("none", (Check("seccomp", "fork", "it was allowed"),)))
    with pytest.raises(IsolationError, match="seccomp: fork: it was allowed"):
        Sandbox()
    with pytest.raises(IsolationError, match="is not available here: seccomp"):
        Sandbox(tier="full", allow_unsafe=True)
    job = Job(program="def f(): return 1", tests=Asserts(code=["assert f() == 1"]))
    with Sandbox(allow_unsafe=True, workers=1) as sandbox:
        [verdict] = sandbox.run([job])
    assert (verdict.status, verdict.tier) == ("pass", "none")


def test_unsafe_is_not_chosen_by_name_alone():
    with pytest.raises(IsolationError, match="asked for by name"):
        Sandbox(tier="none")


def test_a_tier_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"full, landlock\+seccomp, none, not 'ful'"):
        Sandbox(tier="ful")


def test_the_package_imports_the_standard_library_and_itself_only():
    """A worker starts without the rest, and a program can reach no more than the worker has."""
    root = Path(__file__).parents[3]
    code = "import sys; from evals.sandbox import worker, pool; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    others = {
        name for name in names.split() if name.split(".")[0] not in {*sys.stdlib_module_names, "__main__", "evals"}
    }
    assert others == set()
    assert {name for name in names.split() if name.startswith("evals.") and not name.startswith("evals.sandbox")} == {
        "evals.worker_pool"
    }  # of the standard library alone, as the first check says
