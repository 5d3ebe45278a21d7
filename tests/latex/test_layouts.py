"""Every layout of `quatro table` through LaTeX: with the paper's own numbers, in one column and in two."""

import json

import pytest

from evals.results.paper import CODE_BENCHMARKS, paper
from tests.kit import quatro

pytestmark = pytest.mark.latex
SETTING = {"similarity": "tfidf", "threshold": 0.9, "linkage": "components", "tokens": "math"}
HEADS = {
    "one": "\\documentclass{article}\\usepackage[a4paper,margin=2cm]{geometry}",
    # As wide as the paper's style for a conference.
    "two": "\\documentclass[twocolumn]{article}\\usepackage[letterpaper,textwidth=6.75in,textheight=9in]{geometry}",
}


def row(metric, benchmark, k, value, **extra):
    extra |= {"ci_low": 0.9 * value, "ci_high": value} | (SETTING if metric in ("ucc@k", "ucr") else {})
    return {"metric": metric, "benchmark": benchmark, "k": k, "value": value, "num_problems": 30, "n": 256, **extra}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Result files by metric, one for each method of the paper."""
    folder, rows = tmp_path_factory.mktemp("results"), {}
    for series in paper().series:
        if series.benchmark in (None, "average"):
            continue
        scale = 0.01 if series.metric == "pass@k" else 1.0
        kind = "code" if series.benchmark in CODE_BENCHMARKS else series.metric
        place = rows.setdefault((kind, series.label, series.model), [])
        found = {k: value for k, value in series.values().items() if not value * scale > (k if kind == "ucc@k" else 1)}
        place += [row(series.metric, series.benchmark, k, scale * value) for k, value in found.items()]
    for label in ("GSPO", "Ours delta=0.1", "Ours delta=0.01"):
        buckets = [(k, bucket) for k in (8, 64) for bucket in ("very hard", "hard", "medium", "easy")]
        flips = [row("flip@k", name, k, 0.25, bucket=b) for name in ("math500", "olympiad") for k, b in buckets]
        rows["flip@k", label, None] = flips
        rows["ucr", label, None] = [row("ucr", name, None, 0.125) for name in ("math500", "amc23", "aime24", "aime25")]
    found = {}
    for (kind, label, model), some in rows.items():
        path = folder / f"{len(list(folder.iterdir()))}.json"
        head = {"schema": 1, "metric": some[0]["metric"], "label": label, "model": model}
        path.write_text(json.dumps({**head, "rows": some}), encoding="utf-8")
        found.setdefault(kind, []).append(path)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each method with its settings and ten iterations."""
    folder, found = tmp_path_factory.mktemp("runs"), []
    times = {
        "perf/step_s": 20.0,
        "perf/generate_s": 12.0,
        "perf/update_s": 5.0,
        "perf/reward_s": 1.5,
        "perf/audit_s": 1.0,
    }
    for method in ("grpo", "gspo", "gmpo", "gpg", "dapo", "cispo", "quatro"):
        shown = quatro("config", "show", "math-1.5b", "-m", method)
        (folder / method).mkdir()
        (folder / method / "config.yaml").write_text(shown.stdout, encoding="utf-8")
        lines = [{"step": i, "tokens": 1e6, "rollouts": 2048, "entropy/token_mean": 0.2, **times} for i in range(10)]
        text = "".join(json.dumps(one) + "\n" for one in lines)
        (folder / method / "metrics.jsonl").write_text(text, encoding="utf-8")
        found.append(folder / method)
    return found


CASES = {
    "average": ("pass@k", ["--average"]),
    "average beside the paper": ("pass@k", ["--average", "--with-paper"]),
    "average with intervals": ("pass@k", ["--average", "--ci"]),
    "benchmarks": ("pass@k", []),
    "benchmarks beside the paper": ("pass@k", ["--with-paper"]),
    "benchmarks with intervals": ("pass@k", ["--ci", "--k", "1,16,256"]),
    "ucc": ("ucc@k", ["--average"]),
    "ucc beside the paper": ("ucc@k", ["--with-paper"]),
    "ucc with intervals": ("ucc@k", ["--ci"]),
    "code": ("code", ["--with-paper", "all"]),
    "flips": ("flip@k", []),
    "metric": ("ucr", []),
}


def table(*arguments):
    return quatro("table", *arguments, "--format", "latex").stdout


@pytest.mark.parametrize("columns", HEADS)
def test_no_layout_sticks_out_of_its_column_or_page(compile_latex, files, runs, columns):
    found = [table(*files[kind], *options) for kind, options in CASES.values()]
    found += [table(*files["pass@k"][:2], "--average", "--ci"), table(*files["ucc@k"][:2])]
    found.append(table(*runs, "--metric", "entropy"))
    packages = "\\usepackage{booktabs,graphicx,rotating,colortbl}"
    body = "\\clearpage\n".join(found)
    log = compile_latex(f"{HEADS[columns]}{packages}\n\\begin{{document}}\n{body}\\end{{document}}\n")
    assert "Overfull" not in log
    assert "Float too large" not in log
