"""Options that quatro no longer has, each with what to do instead; keys: `quatro/config/errors.py`."""

REMOVED = {
    "quatro train --probe": "measure one iteration of each choice with --steps 1 (-s dtype=bfloat16, "
    "-s policy.gradient_checkpointing=true) and compare perf/step_s in their metrics.jsonl",
}
