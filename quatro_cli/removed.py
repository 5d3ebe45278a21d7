"""Commands and options that quatro no longer has, each with what to do instead; keys: `quatro/config/errors.py`."""

# Options of `eval grade` that the commands which measure had, too.
GRADING = {
    "--regrade": "",
    "--policy": "--policy NAME",
    "--extraction": "--extraction NAME",
    "--thinking": "--thinking MARKERS",
    "--allow-unsafe-code": "--allow-unsafe-code",
}
REMOVED = {
    "quatro train --probe": "measure one iteration of each choice with --steps 1 (-s dtype=bfloat16, "
    "-s policy.gradient_checkpointing=true) and compare perf/step_s in their metrics.jsonl",
    "quatro samples": "type `quatro eval import`",
    "quatro eval temperature": "type `quatro eval side-by-side`",
    "quatro plot temperature": "type `quatro plot side-by-side`",
    "quatro plot heatmap --label": "type --labels NAME,NAME",
    "quatro plot heatmap --scale": "colours go from 0 to 1; `evals.studies.heatmap` has the matrix for others",
    "quatro plot bias": "`quatro eval bias FILE --json` has both curves and the standard error of their difference",
    "quatro table --whole-paper": "--with-paper shows those at your benchmarks and k; all are in `evals.results.paper`",
    "quatro table --standalone": "\\input the table into a document of your own",
    "quatro table --digits": "`--format json` has every value in full",
    "quatro eval clusters --random": "name a problem with --id",
    "quatro eval clusters --members": "`quatro plot heatmap FILE --id ID` shows which samples are near which",
    "quatro eval grade --outcome": "type `--explain --json | jq '.samples[] | select(.outcome == \"error\")'`",
    "quatro eval import --split-by": "write a file for each value first, as with pandas: "
    "`for name, rows in frame.groupby('model'): rows.to_json(f'{name}.jsonl', orient='records', lines=True)`",
    "quatro eval passk --compare": "type `quatro eval compare A B`",
    "quatro eval ucc --compare": "type `quatro eval compare A B --metric ucc@k`",
    "quatro eval ucc --backend": "`quatro doctor --similarity FILE` compares with scikit-learn and rouge_score",
    "quatro eval ucc --show": "type `quatro eval clusters FILE --id ID`",
    **{
        f"quatro eval {command} {option}": f"grade first, with `quatro eval grade FILE{' ' + more if more else ''} -o "
        "graded`, and measure what it writes"
        for command in ("passk", "ucc", "compare", "clusters")
        for option, more in GRADING.items()
    },
    **{
        f"quatro eval {command} --bootstrap-seed": "type --seed N"
        for command in ("passk", "ucc", "compare", "flips", "side-by-side")
    },
}
