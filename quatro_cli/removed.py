"""Options that quatro no longer has. Each is refused with what to do instead; keys of a configuration: `quatro.config`."""

# Command and option, as typed -> what to do instead.
REMOVED = {
    "train --probe": "measure one iteration with --steps 1 and -s dtype=bfloat16 or -s policy.gradient_checkpointing=true, "
    "and compare perf/step_s in metrics.jsonl of both runs",
}
