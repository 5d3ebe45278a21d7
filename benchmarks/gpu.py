"""What one GPU makes of a model with the shape of Qwen2.5-1.5B, in parts that go on where they were left.

    update     optimiser steps by token budget, with and without gradient checkpointing: tokens/s, MFU, memory
    lora       the same of an adapter of rank 32
    gradients  bfloat16 against float32
    decode     our engine against transformers.generate, prompts of 40 to 152 tokens and equally long ones
    iteration  the phases of a whole iteration
    constants  speeds of copies, products, calls and waits, for `quatro train --rehearse FOLDER/gpu-DEVICE.json`

A call stops by itself after --minutes and exits with 75 as long as something is left: call it again. Measurements are
kept in FOLDER/gpu-DEVICE.jsonl and not made again; FOLDER/gpu-DEVICE.md is the table of what there is. All parts
together take about 25 minutes. quatro need not be installed; packages that are missing come from --wheels, a
folder that `pip download --no-deps -d FOLDER pydantic pydantic-core annotated-types typing-inspection` fills for this
Python.

    until python benchmarks/gpu.py; do test $? = 75 || break; done
    python benchmarks/gpu.py --part decode --wheels wheels
    python benchmarks/gpu.py --tiny --device cpu
"""

import argparse
import atexit
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("update", "lora", "gradients", "decode", "iteration", "constants")
TITLES = {
    "update": "One optimiser step: {rollouts} rollouts of at most {limit} tokens",
    "lora": "One optimiser step of LoRA: the same rollouts",
    "gradients": "Gradients",
    "decode": "Rollouts: {prompts} prompts x {n}, bfloat16",
    "iteration": "A whole iteration",
    "constants": "Constants: TB/s, TFLOP/s in bfloat16 and in float32, microseconds",
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again")
    parser.add_argument("--minutes", type=float, default=7.5, help="stop after so many")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where records and table are kept; the default is "
                        "benchmarks/results, and nowhere with --tiny")  # fmt: skip
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="wheels of packages that are not installed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small shape, to try the script itself")
    options = parser.parse_args()
    if options.out is None and not options.tiny:
        options.out = HERE / "results"
    return options


def add_to_path(wheels: Path | None) -> None:
    """quatro's checkout and the unpacked ``wheels`` can be imported, here and in child processes."""
    places = [str(HERE.parent), str(HERE)]
    if wheels is not None:
        found = sorted(wheels.glob("*.whl"))
        if not found:
            raise SystemExit(f"--wheels {wheels}: no file there ends in .whl")
        # A wheel with compiled parts cannot be imported as the zip file that it is.
        unpacked = tempfile.mkdtemp(prefix="wheels-")
        atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
        for wheel in found:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        places.insert(0, unpacked)
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])


def main() -> int:
    options = parse()
    add_to_path(options.wheels)
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "this benchmark measures a CUDA device, and PyTorch sees none here; to try the script itself, add "
            "--tiny --device cpu",
            file=sys.stderr,
        )
        return 3
    try:
        import gpu_constants
        import gpu_rollout
        import gpu_update
    except ModuleNotFoundError as error:
        print(f"{error}; put its wheel into a folder and add --wheels FOLDER (see --help)", file=sys.stderr)
        return 3
    import transformers
    from gpu_case import Case, tiny
    from record import UNFINISHED, Records, TimeIsUp

    from quatro.policy.device import find_device, total_bytes

    device = find_device(options.device)
    case = tiny(device) if options.tiny else Case(device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "CPU"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    about = {**vars(case), "device": name, **versions}
    stem = None if options.out is None else options.out / f"gpu-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}"
    records = Records(None if stem is None else stem.with_suffix(".jsonl"), about, options.minutes)
    parts = {
        "update": gpu_update.update,
        "lora": gpu_update.lora,
        "gradients": gpu_update.gradients,
        "decode": gpu_rollout.decode,
        "iteration": gpu_rollout.iteration,
        "constants": gpu_constants.constants,
    }
    lines = [f"# {case.shape} on {name}", "", ", ".join(f"{key} {value}" for key, value in versions.items())]
    wanted, is_over = options.part or PARTS, False
    for part, run in parts.items():
        title = TITLES[part].format(
            rollouts=case.prompts * case.n, limit=case.max_new_tokens, prompts=case.prompts, n=case.n
        )
        rows: list[str] = []
        try:
            records.is_closed = is_over or part not in wanted
            for row in run(records, case):
                rows.append(row)
        except TimeIsUp:
            is_over = is_over or part in wanted
        if len(rows) > 2 or (rows and "|" not in rows[0]):
            lines += ["", f"## {title}", "", f"`python benchmarks/gpu.py --part {part}`", "", *rows]
    print("\n".join(lines))
    if stem is not None:
        stem.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if (found := records.values.get("constants")) is not None:
            memory = {"memory": (total_bytes(device) or 0) / 2**30} if device.type == "cuda" else {}
            document = json.dumps({"name": name, **memory, **found}, indent=2)
            stem.with_suffix(".json").write_text(document + "\n", encoding="utf-8")
    if is_over:
        print(f"stopped after {options.minutes:g} minutes; the same command goes on", file=sys.stderr)
    return UNFINISHED if is_over else 0


if __name__ == "__main__":
    raise SystemExit(main())
