"""One sandbox for the tests of a module, and the attacks."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from evals.sandbox import Asserts, Job, Limits, Sandbox, Verdict, probe

ATTACKS = Path(__file__).parent / "attacks.py"


@pytest.fixture(scope="module")
def sandbox():
    if probe().name == "none":
        pytest.skip(f"no isolation here: {probe().faults('landlock+seccomp')}")
    with Sandbox() as found:
        yield found


@pytest.fixture(scope="module")
def judge(sandbox):
    """The verdict on one program."""

    def judge(program: str, tests: object, *, every_test: bool = False, **limits: float) -> Verdict:
        tests = Asserts(code=[tests]) if isinstance(tests, str) else tests
        limits = {"timeout_s": 1.0, "memory_mb": 256, "output_mb": 4} | limits
        job = Job(id="one", program=program, tests=tests, limits=Limits(**limits), every_test=every_test)
        [verdict] = sandbox.run([job])
        return verdict

    return judge


@pytest.fixture(scope="session")
def attacks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sandbox_attacks", ATTACKS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def need(tier: str) -> str:
    """The tier, or a skip with the reason why it is not available."""
    faults = probe().faults(tier)
    if faults:
        pytest.skip(f"the tier {tier} is not available here: {faults}")
    return tier


@pytest.fixture(scope="module", params=["full", "landlock+seccomp"])
def each_tier(request):
    with Sandbox(tier=need(request.param)) as found:
        yield found
