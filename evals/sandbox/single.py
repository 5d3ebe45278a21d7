"""One program at a time: `run_program` for a row as test files have it, and the sandbox's test of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evals.sandbox.jobs import Asserts, Job, Limits, Status, Stdio, Verdict
from evals.sandbox.pool import Sandbox

_ADD = "def add(a, b):\n    {}"
_TESTS = Asserts(code=["assert add(1, 2) == 3"])
# What each program of the self-test tries, its body, and the verdict that it must get.
_PROBES: tuple[tuple[str, str, Status], ...] = (
    ("a right answer", "return a + b", "pass"),
    ("a wrong answer", "return a - b", "fail"),
    ("an exit that says all is well", "import os; os._exit(0)", "crash"),
    ("an endless loop", "while True: pass", "timeout"),
    ("a file of another", "open('/etc/passwd').read(); return a + b", "crash"),
    ("a connection", "import socket; socket.socket(); return a + b", "crash"),
)


def run_program(row: Mapping[str, Any], *, tier: str | None = None, allow_unsafe: bool = False) -> Verdict:
    """The verdict on a row {"code", "tests", "kind"?, "entry_point"?, "id"?, "timeout_s"?, "memory_mb"?}.

    Of the kind "function" (the default) ``tests`` is code, a list of it, or one that defines `check(candidate)`; of the
    kind "stdio" it is {"cases": [{"stdin", "stdout"}, ...]}. For many programs, open a `Sandbox` once.

    Raises:
        IsolationError: as `Sandbox`.
        ValueError: the row is not of this form.
    """
    try:
        tests, kind = row["tests"], row.get("kind", "function")
        if kind not in ("function", "stdio"):
            raise TypeError(f"`kind` is function or stdio, not {kind!r}")
        if not isinstance(row["code"], str):
            raise TypeError("`code` is a text")
        if kind == "stdio":
            judge: Asserts | Stdio = Stdio(cases=[(case["stdin"], case["stdout"]) for case in tests["cases"]])
        else:
            code = [tests] if isinstance(tests, str) else list(tests)
            judge = Asserts(code=code, entry_point=row.get("entry_point"))
        limits = Limits(**{name: row[name] for name in ("timeout_s", "memory_mb") if name in row})
        job = Job(id=str(row.get("id", "")), program=row["code"], tests=judge, limits=limits)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"a row has `code` and `tests`, as run_program says; {type(error).__name__}: {error}"
        ) from error
    with Sandbox(tier=tier, workers=1, allow_unsafe=allow_unsafe) as sandbox:
        (verdict,) = sandbox.run([job])
    return verdict


def self_test(sandbox: Sandbox) -> list[str]:
    """What is wrong with the verdicts on six small programs; empty if nothing is."""
    limits = Limits(timeout_s=0.5, memory_mb=256)
    jobs = [Job(id=act, program=_ADD.format(body), tests=_TESTS, limits=limits) for act, body, _ in _PROBES]
    verdicts = sandbox.run(jobs)
    return [
        f"{act}: {verdict.status} ({verdict.detail}), expected {wanted}"
        for (act, _, wanted), verdict in zip(_PROBES, verdicts, strict=True)
        if verdict.status != wanted
    ]
