"""The dual of many prompts at once against a scalar minimiser called prompt by prompt, in one process.

python benchmarks/dual_speed.py
"""

import argparse
import math

import numpy as np
from earlier import cpu_s
from scipy.optimize import minimize_scalar

from quatro.dual import solve_dual


def minimise_one_by_one(reward_QN: np.ndarray, delta: float) -> list[float]:
    """What a user would write: scipy's bounded minimiser of the paper's objective, in log lam."""
    found = []
    for reward_N in reward_QN:

        def objective(log_lam: float, reward_N: np.ndarray = reward_N) -> float:
            lam = math.exp(log_lam)
            top = reward_N.max()
            return lam * (delta + math.log(np.mean(np.exp((reward_N - top) / lam)))) + top

        found.append(math.exp(minimize_scalar(objective, bounds=(-6, 6), method="bounded").x))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--rollouts", type=int, default=8)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (options.prompts, options.rollouts)
    binary_QN = (rng.random(shape) < rng.random((options.prompts, 1))).astype(float)
    print(f"{options.prompts} prompts x {options.rollouts} rollouts, fastest of 20, CPU time")
    for name, reward_QN in (("continuous", rng.random(shape)), ("binary", binary_QN)):
        for delta in (0.1, 0.01, 0.001):
            ours, dual = cpu_s(lambda reward_QN=reward_QN, delta=delta: solve_dual(reward_QN, delta), 20)
            few = reward_QN[:100]
            peer, _ = cpu_s(lambda few=few, delta=delta: minimise_one_by_one(few, delta), 3)
            peer *= options.prompts / len(few)
            error = np.abs((dual.advantage * np.exp(dual.advantage)).mean(axis=1) - dual.delta_effective).max()
            print(
                f"{name:10s} delta {delta:<6g} ours {1e3 * ours:6.2f} ms   scipy, prompt by prompt {peer:6.2f} s"
                f"   ratio {peer / ours:7.0f}   largest error of the KL {error:.1e}"
            )


if __name__ == "__main__":
    main()
