"""Models for the three harnesses that give each prompt its responses, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

Responses = Mapping[str, Sequence[str]]  # by prompt


def of_inspect_ai(responses: Responses, *, fails: Collection[int] = ()) -> Any:
    """A model that raises an error at the calls in ``fails``."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    left, calls = {prompt: iter(texts) for prompt, texts in responses.items()}, iter(range(10_000))

    def output(messages: Any, *_: Any) -> ModelOutput:
        if next(calls) in fails:
            raise RuntimeError("the server is gone")
        found = ModelOutput.from_content("mockllm/model", next(left[messages[-1].text]))
        found.usage = ModelUsage()  # else it would be counted with a tokenizer, which is fetched
        return found

    return get_model("mockllm/model", custom_outputs=output)


LIGHTEVAL = """\
import json
from lighteval.models.abstract_model import LightevalModel
from lighteval.models.model_output import ModelResponse
from lighteval.utils.cache_management import SampleCache


class Fixed(LightevalModel):
    tokenizer, add_special_tokens, max_length = None, False, 2048

    def __init__(self, config, *_):
        self.config, self._cache = config, SampleCache(config)

    def greedy_until(self, docs):
        texts = json.load(open("responses.json"))
        return [ModelResponse(input=one.query, text=texts[one.query][: one.num_samples]) for one in docs]

    def loglikelihood(self, docs):
        raise NotImplementedError("no task here asks for it")

    loglikelihood_rolling = loglikelihood
"""


def run_lighteval(responses: Responses, here: Path, task: str) -> str:
    """What `lighteval custom` printed; its files lie in `out`."""
    (here / "model.py").write_text(LIGHTEVAL, encoding="utf-8")
    (here / "responses.json").write_text(json.dumps(responses), encoding="utf-8")
    program = Path(sys.executable).parent / "lighteval"
    words = [program, "custom", "fixed", "model.py", "sums|0", "--custom-tasks", task, "--save-details"]
    environment = {**os.environ, "HF_HOME": str(here / "cache")}
    done = subprocess.run(
        [*words, "--output-dir", "out"], cwd=here, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def run_lm_eval(responses: Responses) -> tuple[str, Path, Path]:
    """The table that lm-eval prints after a run of the task `sums`, and its files of results and of samples."""
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table

    left = {prompt: iter(texts) for prompt, texts in responses.items()}

    class Fixed(LM):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [next(left[one.args[0]]) for one in requests]

        def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError("no task here asks for it")

        loglikelihood_rolling = loglikelihood

    tracker = EvaluationTracker(output_path="out")
    tasks = TaskManager(include_path=".", include_defaults=False)
    found = lm_eval.simple_evaluate(Fixed(), tasks=["sums"], task_manager=tasks, evaluation_tracker=tracker)
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    tracker.save_results_samples(task_name="sums", samples=samples["sums"])
    (results,), (rows,) = Path("out").rglob("results_*.json"), Path("out").rglob("samples_sums_*.jsonl")
    return make_table(found), results, rows
