"""A sweep for a cluster: one shell command a point, and an array script that runs them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from evals.files.whole import write_text
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, run_folder, sample_arguments
from quatro.sweep.plan import Point, SweepPlan
from quatro.sweep.run import all_points, config_file, status_of, write_plan

SubmissionKind = Literal["slurm", "commands"]


def write_submission(
    plan: SweepPlan, folder: Path, kind: SubmissionKind, *, evaluation: SweepEvaluation | None = None, at_once: int = 1
) -> tuple[Path, int]:
    """The file to hand to the cluster and the number of commands in it: points that are not done, and bases.

    Each command begins or resumes its run and samples it. Repeat the sweep's command afterwards: it measures the
    samples and writes the summary. ``at_once`` bounds the array's running tasks.

    Raises:
        UsageError: as `quatro.sweep.run.write_plan`.
    """
    write_plan(plan, folder)
    points = [point for point in all_points(plan, evaluation) if status_of(point, folder, evaluation).status != "done"]
    commands = folder / "commands.txt"
    write_text(commands, "".join(f"{point_command(point, folder, evaluation)}\n" for point in points))
    if kind == "commands":
        return commands, len(points)
    script = folder / "submit.sh"
    write_text(script, _slurm_script(plan.name, folder, len(points), at_once))
    return script, len(points)


def point_command(point: Point, folder: Path, evaluation: SweepEvaluation | None) -> str:
    """One line of shell: train or resume, then sample at each top_p."""
    run = run_folder(folder, point)
    steps = []
    if point.cell != BASE_CELL:
        begun = shlex.quote(str(run / "config.yaml"))
        done = shlex.quote(str(run / "status.json"))
        resume = _quatro(["train", str(run), "--resume"])
        begin = _quatro(["train", str(config_file(folder, point)), "-o", str(run)])
        is_done = f'grep -q \'"status": "done"\' {done} 2>/dev/null'
        steps.append(f"{{ {is_done} || if [ -f {begun} ]; then {resume}; else {begin}; fi; }}")
    for tag in evaluation.tags if evaluation is not None else ():
        assert evaluation is not None
        steps.append(_quatro(["sample", *sample_arguments(evaluation, point, run, tag)]))
    return " && ".join(steps)


def _quatro(arguments: Sequence[str]) -> str:
    return shlex.join(["quatro", *arguments])


def _slurm_script(name: str, folder: Path, num_commands: int, at_once: int) -> str:
    # Slurm reads #SBATCH lines without a shell: nothing there may need quotes.
    job = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    return (
        "#!/bin/bash\n"
        "# Submit with sbatch from the directory where the sweep was planned, on a file system that all nodes share.\n"
        "# Time, memory, partition and GPUs: add what your cluster wants.\n"
        f"#SBATCH --job-name={job}\n"
        f"#SBATCH --array=1-{num_commands}%{at_once}\n"
        "#SBATCH --output=slurm-%x-%a.txt\n"
        "set -euo pipefail\n"
        f'command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {shlex.quote(str(folder / "commands.txt"))})\n'
        'bash -c "$command"\n'
    )
