"""Finds the delta of each budgeted arm that moves the policy as far as the dual does, on a ninth base model.

    python -m experiments.budgeted.calibrate

As `experiments.ablation.calibrate`, whose iterations, seeds and limit of 5 % hold here, too. What was tried is written
to experiments/budgeted/calibration.json; an arm that is there is not tried again.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evals.files.whole import write_whole
from experiments.ablation.calibrate import CLOSE, MOST_ROUNDS, Task, log_kl, trained

OUT = Path(__file__).parent / "calibration.json"
BASE = "embedded:palindrome@19"
P1 = Task("P1", "quickstart-palindrome", BASE, 0.01)
O = Task("O", "quickstart-palindrome", BASE, 0.01, ("reward=experiments.budgeted.outlier:outlier",))
ARMS = {"P1 budgeted": (P1, ()), "P1 budgeted centred": (P1, ("method.centred=true",)), "O budgeted": (O, ())}


def main() -> None:
    found: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        dual = trained(P1, "dual", (f"method.delta={P1.delta}",), scratch)
        target = np.array([log_kl(run) for run in dual])
        found["log_kl"] = target.tolist()
        for arm, (task, keys) in ((arm, ARMS[arm]) for arm in ARMS if arm not in found):
            delta, tried = task.delta, []
            for number in range(MOST_ROUNDS):
                runs = trained(task, f"{arm}-{number}", (f"method.delta={delta}", *keys), scratch, "budgeted")
                tried.append([delta, float(np.mean([log_kl(run) for run in runs] - target))])
                if abs(tried[-1][1]) < CLOSE:
                    break
                # To second order the KL of a step is proportional to delta.
                delta = float(f"{delta * math.exp(-tried[-1][1]):.4g}")
            found[arm] = {"knob": min(tried, key=lambda one: abs(one[1]))[0], "tried": tried}
            write_whole(OUT, [(json.dumps(found, indent=1) + "\n").encode("utf-8")])
            sys.stdout.write(f"{arm}: {json.dumps(found[arm])}\n")


if __name__ == "__main__":
    main()
