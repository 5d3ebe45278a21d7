"""Writes the replication page of one sweep, and says where it differs from docs/ (`make replicate`).

    python -m experiments.replication SWEEP --out DIR

`python -m experiments.pages` writes docs/ itself, from the results that are committed.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from evals.errors import DataError
from evals.files.whole import write_whole
from experiments.replication.figures import write_figures
from experiments.replication.markdown import comparisons_csv
from experiments.replication.page import Replication, document, page, replicate, spreads_csv
from experiments.replication.results import read_results
from experiments.replication.rules import Finding, Verdict
from experiments.replication.small_n import tables_csv

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = "images/replication"
TABLE = "replication.json"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the replication page of a sweep.")
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the page")
    arguments = parser.parse_args()
    try:
        found = replicate(read_results(arguments.sweep))
        written = write_replication(found, arguments.out)
    except DataError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{path}\n" for path in written))
    if (DOCS / TABLE).is_file():
        known = json.loads((DOCS / TABLE).read_text(encoding="utf-8"))
        sys.stdout.write(beside_docs(found.findings, known))
    return 0


def write_replication(found: Replication, out: Path) -> list[Path]:
    """The page, its figures, its claims and its CSV files in the folder ``out``; returns them all but the figures."""
    figures = write_figures(found.results, found.errors, out / IMAGES)
    texts = {
        out / "replication.md": page(found, figures, images=IMAGES),
        out / TABLE: document(found),
        out / "data/replication.csv": comparisons_csv(found.findings),
        out / "data/replication-spread.csv": spreads_csv(found.findings),
        **{out / f"data/{name}.csv": text for name, text in tables_csv(found.errors).items()},
    }
    (out / "data").mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        write_whole(path, [text.encode("utf-8")])
    return list(texts)


def beside_docs(findings: Sequence[Finding], docs: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """Which verdicts are those of docs/, as lines of text."""
    known = {claim["name"]: claim["verdict"] for claim in docs["claims"]}
    decided = [finding for finding in findings if finding.verdict is not Verdict.undecided]
    differing = [finding for finding in decided if known.get(finding.name) != finding.verdict]
    lines = [f"{len(decided)} claims are decided here; {len(decided) - len(differing)} as in docs/{TABLE}"]
    lines += [
        f"  {finding.name}: {finding.verdict} here, {known.get(finding.name, 'not there')} in docs/: {finding.claim}"
        for finding in differing
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
