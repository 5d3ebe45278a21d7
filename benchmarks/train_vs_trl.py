"""Training against TRL's GRPOTrainer: CPU seconds of whole iterations, phase by phase, and peak memory.

Both sides run their own loops as a user would, in one process and in turns: the same small Qwen2 weights with grouped
heads, ragged prompts, stop tokens, reward, temperature 1, beta > 0 (reference log-probabilities are computed) and K
passes over each batch as one minibatch; prompts are not shuffled by TRL. Ours runs with its audit, as it does by
default, and without. TRL runs as its documentation shows it (8 rows, gradient checkpointing) and tuned: without
checkpointing, with the number of rows that is fastest here. Random weights draw every token about equally often, so
the number of stop tokens sets how long responses are: 4 of 512 spread them like a trained policy's, 1 leaves most of
them near the limit. With --real the model is SmolLM2 after its start (docs/real-model.md), and the prompts are word
problems.

Ratios are TRL's CPU seconds over ours at equal tokens: what each side took for a token, of the responses in sampling
and of prompts and responses in log-probabilities and updates, at our number of tokens. Each side has run a small case
in this process before it is timed. Memory is the peak of a child process of each side beyond that of a child which only
imports what the side imports.

    make bench-trl
    .venv-trl/bin/python benchmarks/train_vs_trl.py --quick
    .venv-trl/bin/python benchmarks/train_vs_trl.py --stops 1 --dtypes float32
    .venv-trl/bin/python benchmarks/train_vs_trl.py --real --quick
    .venv-trl/bin/python benchmarks/train_vs_trl.py --trl-rows 16      # in place of the search for the fastest rows
    .venv-trl/bin/python benchmarks/train_vs_trl.py --records FILE --minutes 14     # in parts; exits 75 before the last
"""

import argparse
import datetime
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from earlier import status_mb
from record import UNFINISHED, Records, TimeIsUp
from trl_sides import REAL, VOCABULARY, ours, theirs, write_inputs

PHASES = ("generate", "log-probs", "update", "other")
DOCUMENTED = {"rows": 8, "checkpointing": True}
TUNED_ROWS = (8, 32, 128)
OUTSIDE = ("dtypes", "blocks", "save", "records", "minutes", "only")  # options that no single measurement depends on
SIDES = ("documented", "tuned", "audited", "unaudited")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=4, help="stop tokens among the 512")
    parser.add_argument("--real", action="store_true", help="a pretrained model, 4 x 4 responses of at most 48 tokens")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[64, 200], help="one length, or least and most")
    parser.add_argument("--kv-heads", type=int, default=2, help="key and value heads, of 8 query heads")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--k", type=int, default=2, help="passes over each batch (TRL: num_iterations)")
    parser.add_argument("--microbatch-tokens", type=int, default=1024, help="ours")
    parser.add_argument("--trl-rows", type=int, help="per_device_train_batch_size of the tuned TRL; no search")
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--iterations", type=int, default=1, help="timed iterations a side and block")
    parser.add_argument("--blocks", type=int, default=4, help="how often the sides take turns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a small case of seconds, to try the script itself")
    parser.add_argument("--save", type=Path, metavar="FILE", help="append the table to a Markdown file")
    parser.add_argument("--records", type=Path, metavar="FILE", help="go on from the measurements of this file")
    parser.add_argument("--minutes", type=float, help="stop after so many; needs --records")
    parser.add_argument("--only", help="one side alone, such as tuned, or libraries-audited; prints its peak memory")
    options = parser.parse_args()
    if options.minutes is not None and options.records is None:
        parser.error("--minutes needs --records FILE, from which the next call goes on")
    if options.real:
        options.prompts, options.n, options.max_new_tokens, options.blocks = 4, 4, 48, 2
        options.dtypes = options.dtypes[:1]
    if options.quick:
        options.prompts, options.n, options.max_new_tokens, options.iterations, options.blocks = 4, 4, 32, 1, 1
        options.stops, options.trl_rows = 32, 8
    return options


# --- measuring ------------------------------------------------------------------------------------------------------


class Sides:
    """Both sides on the inputs of ``options``; each has run a small case in this process before it is measured."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        few = {"prompts": 2, "n": 2, "max_new_tokens": 4, "iterations": 1}
        self.small = argparse.Namespace(**{**vars(options), **few})
        self.options, self.folder, self.is_warm = options, folder, set[tuple[str, str]]()
        write_inputs(folder / "whole", options)
        write_inputs(folder / "small", self.small)

    def __call__(self, side: str, dtype: str, tuned: dict[str, Any]) -> list[dict[str, float]]:
        """CPU seconds and tokens of each iteration."""
        side_of: Callable[..., list[dict[str, float]]]
        if side in ("audited", "unaudited"):
            side_of = functools.partial(ours, audited=side == "audited")
        else:
            side_of = functools.partial(theirs, setting=DOCUMENTED if side == "documented" else tuned)
        if (side, dtype) not in self.is_warm:
            side_of(self.folder / "small", self.small, dtype)
            self.is_warm.add((side, dtype))
        return side_of(self.folder / "whole", self.options, dtype)


def child_peak(only: str, dtype: str, rows: int) -> float:
    """Peak memory of a child process that runs one side alone, or only imports what it imports."""
    command = [sys.executable, *sys.argv, "--iterations", "1", "--dtypes", dtype, "--trl-rows", str(rows)]
    done = subprocess.run([*command, "--only", only], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def only(sides: Sides, options: argparse.Namespace) -> None:
    """The child process of `child_peak`."""
    side = options.only.removeprefix("libraries-")
    if side == options.only:
        sides(side, options.dtypes[0], {"rows": options.trl_rows, "checkpointing": False})
    elif side in ("audited", "unaudited"):
        import quatro.train  # noqa: F401
    else:
        import datasets  # noqa: F401
        from trl import GRPOTrainer  # noqa: F401
    print(status_mb(os.getpid(), "VmHWM"))  # since exec; ru_maxrss would begin with what the parent held when it forked


def tune(records: Records, sides: Sides, options: argparse.Namespace, dtype: str) -> dict[str, Any]:
    """The setting of TRL that takes the fewest CPU seconds a token."""

    def cost(setting: dict[str, Any]) -> float:
        rows = sides("tuned", dtype, setting)
        return sum(row["whole"] for row in rows) / sum(row["all_tokens"] for row in rows)

    most = options.prompts * options.n
    candidates = (options.trl_rows,) if options.trl_rows else sorted({min(rows, most) for rows in TUNED_ROWS})
    settings = [{"rows": rows, "checkpointing": False} for rows in candidates]
    if len(settings) == 1:
        return settings[0]
    costs = [records(f"{dtype}, TRL with {s['rows']} rows", functools.partial(cost, s)) for s in settings]
    return settings[int(np.argmin(costs))]


def measure(records: Records, sides: Sides, options: argparse.Namespace) -> dict[str, Any]:
    """For each number format: the tuned setting, the blocks of each side, and the memory of each side in MiB."""
    found: dict[str, Any] = {}
    for dtype in options.dtypes:
        tuned = tune(records, sides, options, dtype)
        blocks: list[dict[str, Any]] = []
        for block in range(options.blocks):
            turn = block % len(SIDES)
            order = (*SIDES[turn:], *SIDES[:turn])
            measured = {
                side: records(f"{dtype}, {side}, block {block}", functools.partial(sides, side, dtype, tuned))
                for side in order
            }
            blocks.append(measured)
        memory = {
            name: records(f"{dtype}, {name}, memory", functools.partial(child_peak, name, dtype, tuned["rows"]))
            for side in SIDES[:3]
            for name in (side, f"libraries-{side}")
        }
        found[dtype] = {"tuned": tuned, "blocks": blocks, "memory": memory}
    return found


# --- the table ------------------------------------------------------------------------------------------------------


def phases(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """CPU seconds of each phase, and tokens, over the iterations ``rows``."""
    total = {name: sum(row.get(name, 0.0) for row in rows) for name in {key for row in rows for key in row}}
    return total | {"other": total["whole"] - sum(total[name] for name in PHASES[:-1])}


def ratios(theirs: Sequence[dict[str, float]], ours: Sequence[dict[str, float]]) -> dict[str, float]:
    """TRL's CPU seconds over ours, phase by phase and of the whole, at our number of tokens."""
    one, two = phases(theirs), phases(ours)
    scale = dict.fromkeys(("log-probs", "update"), two["all_tokens"] / one["all_tokens"])
    scale |= {"generate": two["tokens"] / one["tokens"], "other": 1.0}
    equal = {name: one[name] * scale[name] for name in PHASES}
    return {name: equal[name] / two[name] for name in PHASES[:-1]} | {"whole": sum(equal.values()) / two["whole"]}


def lines_of(found: dict[str, Any]) -> Iterator[str]:
    pairs = [(dtype, side) for dtype in found for side in SIDES[:2]]
    names = {(dtype, "documented"): f"{dtype}, as documented (8 rows, checkpointing)" for dtype in found} | {
        (dtype, "tuned"): f"{dtype}, tuned ({found[dtype]['tuned']['rows']} rows)" for dtype in found
    }

    def cell(pair: tuple[str, str], own: str, name: str) -> str:
        dtype, side = pair
        blocks = found[dtype]["blocks"]
        each = [ratios(block[side], block[own])[name] for block in blocks]
        whole = ratios(*([row for block in blocks for row in block[s]] for s in (side, own)))[name]
        return f"{whole:.2f} x ({min(each):.2f}-{max(each):.2f})"

    def memory(pair: tuple[str, str]) -> str:
        peak = found[pair[0]]["memory"]
        our, their = (peak[s] - peak[f"libraries-{s}"] for s in ("audited", pair[1]))
        return f"{our:.0f} / {their:.0f} MiB = {our / their:.2f}"

    def rows_of(dtype: str, side: str) -> list[dict[str, float]]:
        return [row for block in found[dtype]["blocks"] for row in block[side]]

    def shares(dtype: str, side: str) -> str:
        total = phases(rows_of(dtype, side))
        audit = f" (audit {total['audit'] / total['whole']:.0%})" if side == "audited" else ""
        return ", ".join(f"{total[name] / total['whole']:.0%}" for name in PHASES) + audit

    def line(title: str, cells: Iterable[str]) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    yield line("TRL's GRPOTrainer over quatro", (names[pair] for pair in pairs))
    yield "|---" * (len(pairs) + 1) + "|"
    for title, own, name in (
        ("whole iteration, our audit on", "audited", "whole"),
        ("whole iteration, our audit off", "unaudited", "whole"),
        ("generate", "audited", "generate"),
        ("log-probabilities", "audited", "log-probs"),
        ("update", "audited", "update"),
    ):
        yield line(title, (cell(pair, own, name) for pair in pairs))
    yield line("peak memory beyond libraries, ours / TRL's", map(memory, pairs))
    spread = (np.mean([row["padded_over_real"] for row in rows_of(*pair)]) for pair in pairs)
    yield line("padded / real tokens of TRL's batches", (f"{value:.2f}" for value in spread))
    yield line("TRL's generate, log-probabilities, update, other", (shares(*pair) for pair in pairs))
    yield line("ours, with the audit", (shares(dtype, "audited") for dtype, _ in pairs))


def main() -> int:
    options = parse()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        sides = Sides(Path(name), options)
        if options.only:
            only(sides, options)
            return 0
        import trl

        case = {key: value for key, value in vars(options).items() if key not in OUTSIDE}
        case |= {"torch": torch.__version__, "trl": trl.__version__}
        records = Records(options.records, case, options.minutes)
        try:
            found = measure(records, sides, options)
        except TimeIsUp:
            print(f"stopped after {options.minutes:g} minutes; the same command goes on", file=sys.stderr)
            return UNFINISHED
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    lengths = "-".join(map(str, options.prompt_tokens))
    model = f"{options.stops} stop tokens of {VOCABULARY}, 8 query, {options.kv_heads} key-value heads"
    if options.real:
        lengths, model = "24-28", REAL
    notes = [
        f"{date}, TRL {trl.__version__}, torch {torch.__version__}, {options.threads} thread:",
        f"`{' '.join(['python', *sys.argv])}`.",
        f"{options.prompts} prompts of {lengths} tokens x {options.n} rollouts of at most {options.max_new_tokens},",
        f"{model}; K = {options.k};",
        f"micro-batches of ours: {options.microbatch_tokens} tokens. Interleaved blocks: {options.blocks}, each with",
        f"iterations a side: {options.iterations}; ratios of all of them, and the least and the greatest of a block.",
    ]
    page = "\n".join(["## Training against TRL's GRPOTrainer", "", *notes, "", *lines_of(found), ""])
    print(page)
    if options.save is not None:
        with open(options.save, "a", encoding="utf-8") as out:
            out.write("\n" + page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
