"""Draws docs/images/verl-parity.png from the gradient norms that tests/verl/test_parity.py has written.

QUATRO_VERL_PARITY=parity.json make test-verl-ray
python -m experiments.verl_parity parity.json
"""

import json
import sys
from pathlib import Path

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "verl-parity.png"


def draw(norms: dict[str, list[float]], path: Path) -> None:
    """Both programs' norms above, and how far they are apart below, where they are apart at all."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ours, theirs = norms["quatro"], norms["verl"]
    steps = range(1, len(ours) + 1)
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.0, 4.2), sharex=True, height_ratios=(2, 1))
    above.plot(steps, ours, color="tab:blue", label="quatro")
    above.plot(steps, theirs, "o", color="tab:orange", markersize=3.5, label="verl 0.9.1 with the plug-in")
    above.set_yscale("log")
    above.set_ylabel("gradient norm")
    above.legend()
    below.semilogy(steps, [abs(b / a - 1.0) for a, b in zip(ours, theirs, strict=True)], ".", color="tab:gray")
    below.set_ylabel("relative\ndifference")
    below.set_xlabel("optimiser step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), IMAGE)
