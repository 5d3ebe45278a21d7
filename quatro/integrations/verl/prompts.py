"""Our training prompts as the parquet file that verl reads."""

from __future__ import annotations

import json
from pathlib import Path

from evals.benchmarks.prompts import messages
from quatro.config import Config
from quatro.rollout.prompts import training_problems


def write_prompts(config: Config, path: Path) -> int:
    """The number of prompts of ``config.data`` written: chat turns, the reference answer, and what rewards read.

    verl turns them into the same tokens as our trainer: both ask the model's own chat template.

    Raises:
        As `training_problems`.
    """
    import pandas

    rows = [
        {
            "data_source": problem.benchmark,
            "prompt": messages(config.data.prompt_template, problem.problem),
            "reward_model": {"style": "rule", "ground_truth": "" if problem.answer is None else str(problem.answer)},
            "extra_info": {"id": problem.id, "problem": problem.problem, "extra": json.dumps(dict(problem.extra))},
        }
        for problem in training_problems(config.data)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    pandas.DataFrame(rows).to_parquet(unfinished)
    unfinished.replace(path)
    return len(rows)
