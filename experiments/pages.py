"""Writes the measured pages of docs/, their figures, JSON and CSV files from experiments/results/ (`make pages`).

python -m experiments.pages [--out DIR]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from evals.errors import DataError, UsageError
from evals.files.whole import write_whole
from experiments import best, choosing
from experiments.ablation import page as ablation
from experiments.archive import known_archives, unpack
from experiments.beyond import page as beyond
from experiments.budgeted import page as budgeted
from experiments.real_model import page as real_model
from experiments.replication.__main__ import write_replication
from experiments.replication.markdown import comparisons_csv, document
from experiments.replication.page import replicate
from experiments.replication.results import Results, read_results
from experiments.which_similarity import page as which

DOCS = Path(__file__).parents[1] / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the measured pages from the results that are committed.")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder for the pages; default: docs")
    out = parser.parse_args().out
    try:
        with tempfile.TemporaryDirectory() as scratch:
            sweeps = {name: unpacked(archive, Path(scratch) / name) for name, archive in known_archives().items()}
            written = write_replication(replicate(sweeps["paper-small"]), out) if "paper-small" in sweeps else []
            findings = {"choosing-delta": choosing.findings_of(sweeps), "ablation": ablation.findings_of(sweeps)}
            compared = budgeted.findings_of(sweeps)
            advice = budgeted.advice(sweeps, compared) if compared else []
            texts = {
                out / "choosing-delta.md": choosing.page(sweeps, findings["choosing-delta"], advice),
                out / "ablation.md": ablation.page(sweeps, findings["ablation"]),
                **{out / f"{name}.json": document(some, schema=1) for name, some in findings.items()},
                out / "best.md": best.page(sweeps),
                out / "data/arms.csv": best.every_arm(sweeps),
                out / "real-model.md": real_model.page((DOCS / "real-model.md").read_text(encoding="utf-8")),
                out / "real-model.json": real_model.document(),
                out / "data/real-model.csv": real_model.differences_csv(),
                out / "which-similarity.md": which.page((DOCS / "which-similarity.md").read_text(encoding="utf-8")),
                out / "data/which-similarity.csv": which.agreement_csv(),
            }
            if compared:
                texts[out / "budgeted.md"] = budgeted.page(sweeps, compared)
                texts[out / "budgeted.json"] = budgeted.document(sweeps, compared)
                texts[out / "data/budgeted.csv"] = budgeted.outcomes_csv(sweeps, compared)
            if (results := sweeps.get("beyond-paper")) is not None:
                found = findings["beyond-paper"] = beyond.findings_of(results)
                texts[out / "beyond-paper.md"] = beyond.page(results, found)
                texts[out / "beyond-paper.json"] = beyond.document(results, found)
            texts |= {out / f"data/{name}.csv": comparisons_csv(some) for name, some in findings.items()}
            real_model.draw(out / "images/real-model.png")
            for path, text in texts.items():
                write_whole(path, [text.encode("utf-8")])
    except (DataError, UsageError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{path}\n" for path in [*written, *texts]))
    return 0


def unpacked(archive: Path, folder: Path) -> Results:
    """The results of a committed sweep, which is written to ``folder``."""
    unpack(archive, folder)
    return read_results(folder)


if __name__ == "__main__":
    sys.exit(main())
