"""Finished runs of a sweep in small files that are committed, and sweeps made of such files again.

    python -m experiments.archive pack sweeps/paper-small      # writes experiments/results/paper-small/CELL.json.xz
    python -m experiments.archive unpack paper-small sweeps/paper-small

A file holds, of every finished and measured run of a cell, what the pages of docs/ are made from: its configuration,
the metrics in `METRICS` to six digits, and the counts of every problem. It is JSON, compressed with xz. Checkpoints,
samples and rollouts are not kept. The command that began a sweep goes on with an unpacked one: it trains what is
missing. An embedded model is taught on each machine, and has other weights on another type of processor. Runs of such a
machine are made in a folder of their own and packed into the same results: their untrained model is then kept beside
the first one, as `base/NAME~DIGEST`, and they count as seeds of another base. A run that is kept is not replaced by one
of other weights.
"""

import argparse
import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from evals.errors import DataError, UsageError
from evals.files.whole import write_whole
from quatro.runs.metrics import read_metrics
from quatro.runs.points import base_name, is_sweep
from quatro.sample.folder import PASSK, UCC
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.results import read_sweep

RESULTS = Path(__file__).parent / "results"
ENDING = ".json.xz"
METRICS = (
    *("step", "reward/mean", "accuracy/mean", "entropy/token_mean", "length/mean", "groups/mixed_share"),
    *("kl/new_old", "kl/old_new", "kl/ratio_to_delta", "kl/reference", "approx_kl", "clip_fraction"),
    *("dual/delta", "dual/lam_mean", "dual/kl_mean", "dual/share_without_success", "ratio/ess_share_min"),
    *("grad/norm", "grad/norm_max", "optimizer_steps"),
    *("perf/step_s", "perf/generate_s", "perf/dual_s", "perf/old_logp_s", "perf/ref_logp_s", "perf/update_s"),
)
_PLAN = "sweep.yaml"
_ENVIRONMENT = "environment.json"
_OF_A_RUN = ("config.yaml", "status.json", _ENVIRONMENT)
# Without folders, hosts and times.
_KEPT_OF_ENVIRONMENT = ("quatro", "commit", "python", "processor", "device", "model_digest")

Files = dict[str, Any]  # path in the sweep -> text, or the rows of a metrics.jsonl, or the content of another .json


def pack(sweep: Path, out: Path) -> list[Path]:
    """Writes a file for the plan, for the untrained models and for each cell with measured runs; returns their paths.

    The same runs give the same bytes. What a file that is there holds of other runs stays in it, and so does a run that
    began with other weights than the one of its name here.

    Raises:
        DataError: ``sweep`` is no sweep, a file of it cannot be read, or runs of it began with different weights of one
            model, whose untrained model was measured once.
    """
    if not is_sweep(sweep):
        raise DataError(f"{sweep} is no sweep; give the folder that `quatro sweep` wrote")
    found = defaultdict[str, Files](dict)
    found["plan"] = {_PLAN: _larger_plan((sweep / _PLAN).read_text(encoding="utf-8"), out / f"plan{ENDING}")}
    runs, _ = read_sweep(sweep)
    folders = [(run.cell, run.folder) for run in runs]
    folders += [(BASE_CELL, folder) for folder in sorted((sweep / BASE_CELL).glob("*"))]
    for cell, folder in folders:  # a sweep without cells is one file
        found[cell or "runs"] |= _slim(sweep, folder)
    kept = {path.name.removesuffix(ENDING): _files_in(path) for path in sorted(out.glob(f"*{ENDING}"))}
    added = _as_other_bases(found, kept, sweep)
    merged = {cell: kept.get(cell, {}) | files for cell, files in added.items() if files}
    written = []
    for cell, files in merged.items():
        path = out / f"{cell}{ENDING}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(files, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
        write_whole(path, [lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)])
        written.append(path)
    return written


def _as_other_bases(found: Mapping[str, Files], kept: Mapping[str, Files], sweep: Path) -> dict[str, Files]:
    """``found``, with untrained models of other weights than the kept ones under names of their own.

    Without the runs that are kept with other weights.
    """
    before = {name: (model, digest) for files in kept.values() for name, model, digest in _runs_in(files)}
    here = {name: (model, digest) for files in found.values() for name, model, digest in _runs_in(files)}
    digests: dict[str, str | None] = {}
    for model, digest in here.values():
        if digests.setdefault(model, digest) != digest:
            raise DataError(
                f"runs of {model} in {sweep} began with different weights, or some did not record theirs: another "
                "machine teaches an embedded model otherwise. Train the runs of each machine in a folder of its own, "
                "and pack them one after the other"
            )
    names = {}  # of the folder of an untrained model, as it is kept
    for model, digest in digests.items():
        own = f"{base_name(model)}~{digest}"
        known = {each for name, each in before.values() if name == model}
        if known and (
            digest not in known or any(name.startswith(f"{BASE_CELL}/{own}/") for name in kept.get(BASE_CELL, {}))
        ):
            names[base_name(model)] = own
    left_out = sorted(name for name, run in here.items() if before.get(name, run) != run)
    if left_out:
        sys.stderr.write(f"{len(left_out)} runs are kept with other weights, and stay: {', '.join(left_out)}\n")

    def renamed(name: str) -> str:
        first, folder, rest = (*name.split("/", 2), "", "")[:3]
        return f"{first}/{names[folder]}/{rest}" if first == BASE_CELL and folder in names else name

    return {
        cell: {renamed(name): content for name, content in files.items() if not name.startswith(tuple(left_out))}
        for cell, files in found.items()
    }


def _runs_in(files: Files) -> Iterator[tuple[str, str, str | None]]:
    """Of each run its folder, with a slash, its model, and the digest of the weights if it recorded one."""
    for name, content in files.items():
        if name.endswith("/config.yaml"):
            folder = name.removesuffix("config.yaml")
            yield (
                folder,
                str(yaml.safe_load(content)["model"]),
                files.get(folder + _ENVIRONMENT, {}).get("model_digest"),
            )


def unpack(archive: Path, sweep: Path) -> None:
    """Writes the sweep that ``archive`` (a folder that `pack` wrote) holds; what is already there stays.

    Raises:
        UsageError: ``archive`` holds no such file.
        DataError: one of its files is damaged.
    """
    paths = sorted(archive.glob(f"*{ENDING}"))
    if not paths:
        raise UsageError(f"{archive} holds no {ENDING} file; there are {', '.join(sorted(known_archives())) or 'none'}")
    for path in paths:
        for name, content in _files_in(path).items():
            target = sweep / name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_whole(target, [_text(content).encode("utf-8")])


def _larger_plan(text: str, kept: Path) -> str:
    """``text`` with the points that only the kept plan has; that plan itself if it has all: a part may be packed."""
    before = str(_files_in(kept)[_PLAN]) if kept.is_file() else text
    points, known = (set(yaml.safe_load(one)["points"]) for one in (text, before))
    if points <= known:
        return before
    for block in ("points:\n", "cells:\n"):  # in which each line is a point
        own, kept_lines = (one.partition(block)[2].splitlines(keepends=True) for one in (text, before))
        missing = [line for line in takewhile(lambda line: line.startswith("  "), kept_lines) if line not in own]
        text = text.replace(block, block + "".join(missing), 1)
    return text


def _files_in(path: Path) -> Files:
    try:
        files: Files = json.loads(lzma.decompress(path.read_bytes()))
    except (lzma.LZMAError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); take it from the repository again") from error
    return files


def known_archives(root: Path = RESULTS) -> Mapping[str, Path]:
    """The committed sweeps: name -> folder."""
    return {path.name: path for path in sorted(root.glob("*")) if any(path.glob(f"*{ENDING}"))}


def _slim(sweep: Path, folder: Path) -> Files:
    """What is kept of a run or of an untrained model; nothing of one that is not measured."""
    measured = sorted(tag for tag in folder.glob("samples/*") if all((tag / name).is_file() for name in (PASSK, UCC)))
    if not measured:
        return {}
    paths = [folder / name for name in _OF_A_RUN] + [tag / name for tag in measured for name in (PASSK, UCC)]
    files = {_name(sweep, path): _content(path) for path in paths if path.is_file()}
    if (folder / "metrics.jsonl").is_file():
        files[_name(sweep, folder / "metrics.jsonl")] = list(_slim_rows(folder))
    return files


def _slim_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for row in read_metrics(folder):
        yield {
            name: float(f"{row[name]:.6g}") if isinstance(row[name], float) else row[name]
            for name in METRICS
            if name in row
        }


def _name(sweep: Path, path: Path) -> str:
    return path.relative_to(sweep).as_posix()


def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return text
    content = json.loads(text)
    if path.name != _ENVIRONMENT:
        return content
    torch = content.get("packages", {}).get("torch", content.get("torch"))
    kept = {key: content[key] for key in _KEPT_OF_ENVIRONMENT if key in content}
    return kept | ({"torch": torch} if torch else {})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(json.dumps(row, allow_nan=False) + "\n" for row in content)
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack the finished runs of a sweep into small files, and back.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write the results of a sweep's finished runs")
    packing.add_argument("sweep", type=Path)
    packing.add_argument("--out", type=Path, help="folder; without it experiments/results/NAME OF THE SWEEP")
    unpacking = commands.add_parser("unpack", help="make a sweep of such results, which `quatro sweep` can go on with")
    unpacking.add_argument("name", help=f"one of {', '.join(known_archives()) or 'none'}, or a folder")
    unpacking.add_argument("sweep", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "pack":
            for path in pack(arguments.sweep, arguments.out or RESULTS / arguments.sweep.resolve().name):
                sys.stdout.write(f"{path}  {path.stat().st_size / 1024:.0f} KiB\n")
        else:
            unpack(known_archives().get(arguments.name, Path(arguments.name)), arguments.sweep)
    except (DataError, UsageError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
