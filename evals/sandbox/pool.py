"""The sandbox as its user sees it: workers that are handed jobs and give verdicts."""

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import tee
from typing import Any

from evals.sandbox.jobs import Asserts, Job, Limits, Status, Stdio, Verdict, messages
from evals.sandbox.landlock import readable_paths
from evals.sandbox.packages import PACKAGES
from evals.sandbox.pipes import frame
from evals.sandbox.tiers import ENVIRONMENT, TIERS, IsolationError, interpreter, probe
from evals.sandbox.values import CannotCrossError, write_json
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool

_START_S = 60.0
# A worker ends each job by itself; one that is silent for this long is broken.
_SILENT_S = 2 * 3600.0
_MOST_PROGRAM_BYTES = 1 << 20
_MOST_TRIES = 2


class Sandbox(contextlib.AbstractContextManager["Sandbox"]):
    """Runs programs that nobody has read, each with its tests, in isolation.

    ``tier`` is the strongest that this machine allows (`probe`), or the one named. Where there is none,
    `IsolationError` is raised, unless ``allow_unsafe``. ``preload`` names modules that workers import beforehand;
    ``packages`` names installed distributions that programs may import, beside `PACKAGES`. The workers start with the
    first job, and end with `close`.

    Raises IsolationError if the tier is not available on this machine.
    """

    def __init__(
        self,
        *,
        tier: str | None = None,
        workers: int = 2,
        allow_unsafe: bool = False,
        preload: Sequence[str] = (),
        packages: Sequence[str] = (),
    ) -> None:
        if tier is not None and tier not in TIERS:
            raise ValueError(f"tier is one of {', '.join(TIERS)}, not {tier!r}")
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self.tier = tier or probe().name
        settings = {"tier": self.tier, "preload": list(preload), "readable": readable_paths((*PACKAGES, *packages))}
        self._pool = WorkerPool(
            partial(_launched, settings),
            num_workers=workers,
            timeout_s=_SILENT_S,
            start_timeout_s=_START_S,
            max_tries=_MOST_TRIES,
            encode=_encoded,
        )
        self._lock = threading.Lock()
        faults = probe().faults(self.tier)
        if faults:
            raise IsolationError(f"the tier {self.tier!r} is not available here: {'; '.join(faults)}")
        if self.tier == "none" and not allow_unsafe:
            tried = "; ".join(probe().faults("landlock+seccomp")) or "it was asked for by name"
            raise IsolationError(
                f"programs would run without isolation ({tried}). Use Linux 6.2 or later with Landlock and seccomp, or "
                "allow unsafe code if you trust every program"
            )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers and removes their folders."""
        self._pool.close()

    def run(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        """The verdict on each job, in their order; jobs are taken as workers become free.

        Raises:
            IsolationError: a worker could not isolate itself.
            RuntimeError: another run of this sandbox is not over.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("this sandbox is running other jobs; finish them first, or open another sandbox")
        asked, answered = tee(jobs)
        try:
            with contextlib.closing(self._pool.run(asked)) as answers:
                for answer, job in zip(answers, answered, strict=False):  # the first has as many, and ends first
                    yield self._verdict(job, answer)
        except CannotStartError as error:
            raise IsolationError(f"a worker of the sandbox could not start: {error}") from error
        finally:
            self._lock.release()

    def _verdict(self, job: Job, answer: Message | Failure) -> Verdict:
        """The verdict that a worker gave, or what its failure says of the job."""
        if not isinstance(answer, Failure):
            return Verdict(id=job.id, tier=self.tier, **answer)
        if answer.kind == "refused":
            return Verdict(id=job.id, tier=self.tier, status="refused", detail=answer.detail)
        return Verdict(id=job.id, tier=self.tier, status="infra_error", detail=f"its worker {answer.detail}")


@contextlib.contextmanager
def _launched(settings: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a worker, with a folder that goes when it does."""
    # Not TemporaryDirectory: before Python 3.11.9 its clean-up follows links, which a killed program may have left.
    folder = tempfile.mkdtemp(prefix="sandbox-")
    command = [*interpreter("worker"), json.dumps({**settings, "work": folder})]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    try:
        with subprocess.Popen(
            command, 0, stdin=pipe, stdout=pipe, stderr=quiet, env=ENVIRONMENT, cwd="/", start_new_session=True
        ) as process:
            yield process
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what a killed worker left there goes, too


def _encoded(job: Job) -> bytes | Failure:
    """The two messages on a job, each with its length before it; or why they cannot be sent."""
    size = len(job.program.encode("utf-8", "surrogatepass"))
    if size > _MOST_PROGRAM_BYTES:
        return Failure("refused", f"the program has {size} bytes; {_MOST_PROGRAM_BYTES} are allowed")
    try:
        return b"".join(frame(write_json(message)) for message in messages(job))
    except (CannotCrossError, RecursionError) as error:
        return Failure("refused", f"the tests cannot be sent: {error}")


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
        if kind not in ("function", "stdio") or not isinstance(row["code"], str):
            raise TypeError(f"`kind` is function or stdio, found {kind!r}; `code` is a text")
        if kind == "stdio":
            judge: Asserts | Stdio = Stdio(cases=[(case["stdin"], case["stdout"]) for case in tests["cases"]])
        else:
            code = [tests] if isinstance(tests, str) else list(tests)
            judge = Asserts(code=code, entry_point=row.get("entry_point"))
        limits = Limits(**{name: row[name] for name in ("timeout_s", "memory_mb") if name in row})
        job = Job(id=str(row.get("id", "")), program=row["code"], tests=judge, limits=limits)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a row has `code` and `tests`; {type(error).__name__}: {error}") from error
    with Sandbox(tier=tier, workers=1, allow_unsafe=allow_unsafe) as sandbox:
        (verdict,) = sandbox.run([job])
    return verdict


def self_test(sandbox: Sandbox) -> list[str]:
    """What is wrong with the verdicts on six small programs; empty if nothing is."""
    limits = Limits(timeout_s=0.5, memory_mb=256)
    jobs = [Job(id=act, program=_ADD.format(body), tests=_TESTS, limits=limits) for act, body, _ in _PROBES]
    return [
        f"{verdict.id}: {verdict.status} ({verdict.detail}), expected {wanted}"
        for verdict, (_, _, wanted) in zip(sandbox.run(jobs), _PROBES, strict=True)
        if verdict.status != wanted
    ]
