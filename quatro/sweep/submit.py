"""A sweep that SLURM runs: one shell command a point, and a script of which each task runs one of them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from evals.errors import UsageError
from evals.files.whole import write_text
from quatro.config import Config
from quatro.processes.launcher import torchrun_options
from quatro.runs.points import config_file
from quatro.sweep.measure import BASE_CELL, SweepEvaluation, run_folder, sample_arguments
from quatro.sweep.plan import Point, SweepPlan
from quatro.sweep.run import all_points, status_of, write_plan


@dataclass(frozen=True)
class SlurmOptions:
    """What SLURM is asked for: tasks at a time, the time limit of a point and the partition; None leaves it out."""

    at_once: int = 1
    time: str | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        if self.time is not None and not re.fullmatch(r"(\d+-)?\d{1,2}(:\d{2}){0,2}|\d+", self.time):
            raise UsageError(f"--time {self.time}: expected a time limit as SLURM reads it, such as 12:00:00")
        if self.partition is not None and not re.fullmatch(r"[\w.,-]+", self.partition):
            raise UsageError(f"--partition {self.partition}: expected a name without spaces")


def write_submission(
    plan: SweepPlan, folder: Path, options: SlurmOptions, evaluation: SweepEvaluation | None = None
) -> tuple[Path, int]:
    """The script to submit and the number of commands it runs: points that are not done, and bases.

    Each command begins or resumes its run and samples it. `quatro sweep FOLDER` afterwards measures the
    samples and writes the summary.

    Raises:
        UsageError: as `quatro.sweep.run.write_plan`.
    """
    write_plan(plan, folder, evaluation)
    points = [point for point in all_points(plan, evaluation) if status_of(point, folder, evaluation).status != "done"]
    commands = folder / "commands.txt"
    write_text(commands, "".join(f"{point_command(point, folder, evaluation)}\n" for point in points))
    script = folder / "submit.sh"
    most = max((_num_gpus(point.config) for point in points), default=0)
    write_text(script, _slurm_script(plan.name, folder, len(points), most, options))
    return script, len(points)


def point_command(point: Point, folder: Path, evaluation: SweepEvaluation | None) -> str:
    """One line of shell: train or resume, then sample in each way."""
    run = run_folder(folder, point)
    steps = []
    if point.cell != BASE_CELL:
        begun = shlex.quote(str(run / "config.yaml"))
        done = shlex.quote(str(run / "status.json"))
        program = ["quatro"]
        if (processes := point.config.processes or 1) > 1:
            program = ["torchrun", "--standalone", *torchrun_options(processes), "-m", "quatro_cli"]
        resume = shlex.join([*program, "train", str(run), "--resume"])
        begin = shlex.join([*program, "train", str(config_file(folder, point.name)), "-o", str(run)])
        is_done = f'grep -q \'"status": "done"\' {done} 2>/dev/null'
        steps.append(f"{{ {is_done} || if [ -f {begun} ]; then {resume}; else {begin}; fi; }}")
    if evaluation is not None:
        asked = (sample_arguments(evaluation, point, run, tag, _num_gpus(point.config)) for tag in evaluation.tags)
        steps += [shlex.join(["quatro", "sample", *arguments]) for arguments in asked]
    return " && ".join(steps)


def _num_gpus(config: Config) -> int:
    return 0 if config.device == "cpu" else config.processes or 1


def _slurm_script(name: str, folder: Path, num_commands: int, num_gpus: int, options: SlurmOptions) -> str:
    # SLURM reads #SBATCH lines without a shell: nothing there may need quotes.
    job = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    asked = {
        "job-name": job,
        "array": f"1-{num_commands}%{options.at_once}",
        "output": "slurm-%x-%A-%a.txt",
        "gres": f"gpu:{num_gpus}" if num_gpus else None,
        "time": options.time,
        "partition": options.partition,
    }
    return (
        "#!/bin/bash\n"
        "# Submit with sbatch from the directory where the sweep was planned, on a file system that all nodes share.\n"
        "# A task that its time limit ends goes on from its last checkpoint when the script is submitted again.\n"
        "# Options of sbatch itself win over those below, such as --cpus-per-task 16 --mem 128G --account NAME.\n"
        + "".join(f"#SBATCH --{option}={value}\n" for option, value in asked.items() if value is not None)
        + "set -euo pipefail\n"
        f'command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {shlex.quote(str(folder / "commands.txt"))})\n'
        'bash -c "$command"\n'
    )
