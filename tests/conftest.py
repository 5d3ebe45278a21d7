"""A tiny untrained policy in a plain Hugging Face folder, configurations that train it in a second, public vectors.

And what the tests cost: CPU seconds, which another process on the machine hardly changes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from hypothesis import settings as hypothesis_settings

if TYPE_CHECKING:
    from quatro.config import Config
    from quatro.policy.rows import Rows
    from tests.stub import Stub


NUM_SLOWEST = 20
_BEGAN_AT = pytest.StashKey[float]()
_cpu_s_of: dict[str, float] = {}  # of each test, with its fixtures and child processes

# A shell's background job ignores SIGINT, and so would the children that tests send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of a call of `CliRunner.invoke` most would go into making all commands once more, which are the same each time.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# The first two try the same examples each time; `make test-fuzz` looks for new ones.
hypothesis_settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
hypothesis_settings.register_profile("thorough", max_examples=100, deadline=None, derandomize=True)
hypothesis_settings.register_profile("fuzz", max_examples=3000, deadline=None)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def cpu_seconds() -> float:
    """User and system time of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + cpu_seconds_of_the_living()


def cpu_seconds_of_the_living() -> float:
    """What children that have not ended used: so a server's work counts where it is done. 0 but on Linux."""
    children, ticks = [], 0
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            children += path.read_text(encoding="ascii").split()
    for child in children:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own and that of the children it waited for
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGAN_AT] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    item.user_properties.append(("cpu_s", cpu_seconds() - item.stash[_BEGAN_AT]))
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _cpu_s_of[report.nodeid] = dict(report.user_properties).get("cpu_s", 0.0)  # without it where a fixture failed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section(f"CPU seconds of the slowest {NUM_SLOWEST} tests")
    for name in sorted(_cpu_s_of, key=_cpu_s_of.__getitem__, reverse=True)[:NUM_SLOWEST]:
        terminalreporter.line(f"{_cpu_s_of[name]:7.2f}  {name}")
    # The workers of pytest-xdist are children, and have ended by now.
    terminalreporter.line(f"{cpu_seconds() / 60:.1f} CPU minutes (user + sys) for {len(_cpu_s_of)} tests")


@pytest.fixture(scope="session", autouse=True)
def one_worker_a_reward() -> Iterator[None]:
    """A reward of the user's own scores in one process unless a test says otherwise: tests give it a few responses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quatro.rewards.function.MAX_WORKERS", 1)
        yield


@pytest.fixture
def compile_latex(tmp_path: Path) -> Callable[[str], str]:
    """What LaTeX says of a whole document, which must compile; under the mark `latex`, where it has to be installed."""
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    if shutil.which("pdflatex") is None:
        command = ["tectonic", "--untrusted", "--keep-logs"]

    def compile_latex(text: str) -> str:
        (tmp_path / "t.tex").write_text(text, encoding="utf-8")
        done = subprocess.run([*command, "t.tex"], cwd=tmp_path, capture_output=True, timeout=300, check=False)
        log = tmp_path / "t.log"
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else done.stderr.decode()
        assert done.returncode == 0, said[-2000:]
        assert (tmp_path / "t.pdf").stat().st_size > 0
        return said

    return compile_latex


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded architecture with random weights, larger than usual so that it is far from uniform."""
    torch = pytest.importorskip("torch")

    from quatro.policy import embedded
    from quatro.tasks import countdown

    folder = tmp_path_factory.mktemp("models") / "tiny"
    recipe = countdown.CountdownWarmStart(hidden_size=32, num_heads=1, mlp_size=64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = embedded.make_model(recipe)
        for parameter in model.parameters():
            parameter.data.mul_(3.0)
    model.save_pretrained(folder)
    embedded.make_tokenizer(recipe.max_positions).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def started() -> Path:
    """The folder of SmolLM2 after its start on word problems, which is made here once (some minutes)."""
    pytest.importorskip("torch")
    from evals.errors import MissingError
    from quatro.policy.embedded import resolve_model

    try:
        return Path(resolve_model("smollm2-started"))
    except MissingError as error:
        pytest.skip(f"SmolLM2 cannot be had here: {error}")


@pytest.fixture
def tiny_config(tiny_folder: Path, tmp_path: Path) -> Callable[..., Config]:
    """``tiny_config("inner_updates=2", method="gspo")``: a few prompts, short responses, one thread."""
    from quatro.config import load_config

    def make(*settings: str, method: str | None = None) -> Config:
        defaults = [
            f"model={tiny_folder}",
            *("steps=4", "prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=2"),
            *("optimizer.lr=1e-2", "optimizer.warmup_steps=0", "checkpoint.every=1", "threads=1"),
        ]
        return load_config("quickstart", overrides=[*defaults, *settings], method=method)

    return make


@pytest.fixture
def ragged_rows() -> Rows:
    """Twelve rows: three a prompt, prompts and responses of different lengths, one response empty."""
    import torch

    from quatro.policy.rows import collate
    from quatro.types import Prompt, Rollout

    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(2, 232, (length,), generator=generator).tolist())

    prompts = [Prompt("b", str(i), "p", None, "p", ids(3 + i)) for i in range(4)]
    lengths = [(1 + i, 0 if i == 1 else 5, 2) for i in range(4)]
    groups = [[Rollout(ids(length), "", "stop") for length in group] for group in lengths]
    advantage_B = torch.randn(12, generator=generator, dtype=torch.float64)
    rows = collate(prompts, groups, advantage_B, max_new_tokens=6)
    old_BT = torch.where(rows.batch.mask_BT, -torch.rand(rows.batch.mask_BT.shape, generator=generator) * 5, torch.nan)
    return rows.with_batch(old_logp_BT=old_BT, ref_logp_BT=old_BT - 0.1)


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """``contents(folder)``: every file below it, by its name there."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


class Forked:
    """A process of the fork server: of what `subprocess.Popen` offers that which tests need."""

    def __init__(self, ask: Callable[..., Any], pid: int, out: Path, err: Path) -> None:
        self._ask, self._out, self._err = ask, out, err
        self.pid = pid
        self.returncode: int | None = None
        self.operations = 0  # of files, where a fault was asked for
        self.stderr = err.open(encoding="utf-8", errors="replace")

    def poll(self, within_s: float = 0.0) -> int | None:
        if self.returncode is None and (found := self._ask(pid=self.pid, within_s=within_s)) is not None:
            self.returncode, self.operations = found
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        if self.poll(timeout) is None:
            raise TimeoutError(f"process {self.pid} has not ended within {timeout:g} s")
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        self.wait(timeout)
        return self._out.read_text(encoding="utf-8", errors="replace"), self.stderr.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def failing_io(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that lets file operations fail; empty where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return ""
    library, source = tmp_path_factory.mktemp("library") / "failing_io.so", Path(__file__).with_name("failing_io.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return str(library)


@pytest.fixture(scope="session")
def fork(tmp_path_factory: pytest.TempPathFactory, failing_io: str) -> Iterator[Callable[..., Forked]]:
    """``fork(["quatro", "train", ...])`` or ``fork([script, ...])``: a real process that has torch already.

    It may take ``cwd``, ``env`` (to add to ours) and ``fault`` (see `tests/forkserver.py`).
    """
    outputs = tmp_path_factory.mktemp("forked")
    common = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("forkserver.py"), failing_io],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**common, "LD_PRELOAD": failing_io} if failing_io else common,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(**request: Any) -> Any:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        reply = server.stdout.readline()
        assert reply, "the fork server ended"
        return json.loads(reply)

    def start(
        argv: Sequence[str | Path],
        *,
        cwd: Path = Path(__file__).parents[1],
        env: Mapping[str, str] | None = None,
        fault: Mapping[str, Any] | None = None,
    ) -> Forked:
        number = len(list(outputs.iterdir())) // 2
        out, err = (outputs / f"{number}.{name}" for name in ("out", "err"))
        out.touch()
        err.touch()
        pid = ask(
            argv=list(map(str, argv)),
            cwd=str(cwd),
            env={**common, **(env or {})},
            fault=fault,
            out=str(out),
            err=str(err),
        )
        return Forked(ask, pid, out, err)

    yield start
    server.stdin.close()
    server.wait(timeout=60)


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of `tests.kit.DigitReward` in a configuration; `many-digits` is the other one there."""
    from quatro.registry import REWARDS

    monkeypatch.setitem(REWARDS.locations, "digits", "tests.kit:DigitReward")
    monkeypatch.setitem(REWARDS.locations, "many-digits", "tests.kit:ManyDigitsReward")
    return "digits"


@pytest.fixture(scope="session")
def digit_reward() -> str:
    """A module: the share of words that are digits. An untrained policy earns mixed rewards with it from the start."""
    return (
        "def share(prompt, completion, answer):\n"
        "    words = completion.split()\n"
        "    return sum(word.isdigit() for word in words) / max(1, len(words))\n"
    )


VECTOR_METRICS = {
    "tfidf_sklearn": ("tfidf", "sklearn"),
    "tfidf_math": ("tfidf", "math"),
    "rougeL": ("rouge-l", "math"),
    "jaccard_math": ("jaccard", "math"),
    "jaccard_ws": ("jaccard", "whitespace"),
    "edit": ("edit", "math"),
}


@pytest.fixture(scope="session")
def vector_metrics() -> dict[str, tuple[str, str]]:
    """Name of a metric in the vector files -> similarity and tokens."""
    return VECTOR_METRICS


@pytest.fixture(params=VECTOR_METRICS)
def vector_metric(request: pytest.FixtureRequest) -> str:
    """Each name in the vector files in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def ucc_vectors() -> Callable[[str], list[dict[str, Any]]]:
    """``ucc_vectors(key)``: the public vectors that hold it."""

    def read(key: str) -> list[dict[str, Any]]:
        folder = os.environ.get("QUATRO_UCC_VECTORS")
        if not folder:
            pytest.skip("QUATRO_UCC_VECTORS is not set")
        files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]
        vectors = [vector for vector in files if key in vector]
        if not vectors:
            pytest.skip(f"{folder} holds no file with {key}")
        return vectors

    return read


@pytest.fixture(scope="session")
def text_vectors(ucc_vectors: Callable[[str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The public vectors that hold texts."""
    return ucc_vectors("texts")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stub]]:
    """``serve(model="small", owned_by="vllm")``: a server; clients do not wait between two tries, nor have a key."""
    for name in ("QUATRO_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("evals.servers.FIRST_WAIT_S", 0.0)
    from tests.stub import Stub

    opened: list[Stub] = []

    def make(**card: Any) -> Stub:
        opened.append(Stub(**card))
        return opened[-1]

    yield make
    for stub in opened:
        stub.close()


@pytest.fixture(scope="module")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache without an embedded model, shared by the tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("QUATRO_CACHE", str(folder))
        yield folder
