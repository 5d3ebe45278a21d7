"""Makes the vectors of this folder anew, or with --check compares what it makes with the files that are there.

    python tests/vectors/methods/generate.py --check           # batches, dual, budget, quatro: numpy and mpmath
    python tests/vectors/methods/generate.py --check --verl    # those of verl: `make test-vectors`

Exit code 1 if a case differs; each is named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import exact
import inputs

FOLDER = Path(__file__).parent
EXACT_RTOL, VERL_RTOL, VERL_ATOL = 1e-12, 1e-6, 1e-12

Record = dict[str, Any]


def exact_files(every: int = 1) -> dict[str, Record]:
    """Contents of the files that need no verl, by name; of the cases one in ``every``."""
    batches = inputs.batches()
    duals = [
        {"name": name, "rewards": rewards, "delta": delta, **exact.dual(rewards, delta)}
        for name, rewards, delta in list(inputs.duals())[::every]
    ]
    losses = [
        {"id": id, "method": "quatro", "batch": name, "hyper": hyper, "expected": exact.loss(batches[name], hyper)}
        for id, name, hyper in list(inputs.quatro_cases())[::every]
    ]
    budgets = [
        {"name": name, "rewards": groups, "delta": delta, "spread": str(spread), **exact.budget(groups, delta, spread)}
        for name, groups, delta, spread in list(inputs.budgets())[::every]
    ]
    files = {"batches": {"batches": batches}, "dual": {"cases": duals}, "quatro": {"cases": losses}}
    return {**files, "budget": {"cases": budgets}}


def verl_files(every: int = 1) -> dict[str, Record]:
    """Contents of the files that verl makes, by name.

    Raises:
        SystemExit: another version of verl is installed than the one that the vectors are of.
    """
    import from_verl

    if inputs.META["verl"] != from_verl.VERSION:
        sys.exit(f"verl {from_verl.VERSION} is installed, expected {inputs.META['verl']}: run `make test-vectors`")
    batches = inputs.batches()
    cases = {
        file: [
            {"id": id, "method": method, "batch": name, "hyper": hyper}
            | {"expected": from_verl.baseline(batches[name], hyper)}
            for id, method, name, hyper in list(inputs.baseline_cases(table))[::every]
        ]
        for file, table in (
            ("baselines", inputs.BASELINES),
            ("relatives", inputs.RELATIVES),
            ("correction", inputs.CORRECTIONS),
        )
    }
    kept = [{"batch": name, "kept_group_ids": from_verl.kept_groups(batch)} for name, batch in batches.items()]
    overlong = [{**case, "reward": from_verl.overlong_reward(case)} for case in inputs.overlong_cases()]
    extras = {"dynamic_sampling": kept, "soft_overlong": overlong}
    return {file: {"cases": found} for file, found in cases.items()} | {"dapo_extras": extras}


def by_name(content: Mapping[str, Any]) -> dict[str, Any]:
    """The cases of a file by a name that says which one is meant."""
    cases = {}
    for key, part in content.items():
        for number, case in enumerate(part) if isinstance(part, list) else part.items():
            if not isinstance(case, dict):  # one value of `meta`
                name = f"{key} {number}"
            elif "name" in case:
                name = f"{case['name']}/{case['delta']}"
            else:
                name = case.get("id") or f"{key} {number}"
            cases[name] = case
    return cases


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value inside ``value`` with where it stands."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def differing(made: Any, wanted: Any, *, rtol: float, atol: float) -> list[str]:
    """Where two cases differ: numbers by more than the tolerance, anything else at all."""
    a, b = dict(leaves(made)), dict(leaves(wanted))

    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, float | int) and isinstance(y, float | int):
            return math.isclose(x, y, rel_tol=rtol, abs_tol=atol)
        return x == y

    return [path for path in {**a, **b} if path not in a or path not in b or not equal(a[path], b[path])]


def complaints(name: str, made: Record, *, is_sample: bool) -> Iterator[str]:
    """One line for each case of file ``name`` that is not as committed."""
    tolerance = {} if name in ("batches", "dual", "budget", "quatro") else {"rtol": VERL_RTOL, "atol": VERL_ATOL}
    found, wanted = by_name(made), by_name(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    for case in wanted.keys() | found.keys() if not is_sample else found.keys():
        if case not in found or case not in wanted:
            yield f"{name}.json: {case}: only {'in the file' if case in wanted else 'made here'}"
        elif paths := differing(found[case], wanted[case], **{"rtol": EXACT_RTOL, "atol": 0.0, **tolerance}):
            yield f"{name}.json: {case}: differs in {', '.join(paths[:3])}{', ...' * (len(paths) > 3)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("--verl", action="store_true", help="the files that verl makes (needs its environment)")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="with --check: one case in K only")
    options = parser.parse_args(arguments)
    if options.every != 1 and not options.check:
        parser.error("--every would write a part of the cases: add --check")

    files = verl_files(options.every) if options.verl else exact_files(options.every)
    num_wrong = 0
    for name, content in files.items():
        made = inputs.rounded({"meta": inputs.META, **content})
        if options.check:
            for line in sorted(complaints(name, made, is_sample=options.every > 1)):
                sys.stdout.write(line + "\n")
                num_wrong += 1
        else:
            text = json.dumps(made, separators=(",", ":")) + "\n"
            (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    if options.check:
        sys.stdout.write(f"{', '.join(files)}: cases that differ: {num_wrong}\n")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
