"""Checks that nobody has changed what a run wrote, before the run goes on from a checkpoint."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.whole import file_digest

logger = logging.getLogger(__name__)

PUT_BACK = "put it back as it was, or begin a new run from config.yaml"


def refuse_changed(run: Path, written: Mapping[str, Any]) -> None:
    """Compare metrics.jsonl and the rollouts of a run with what `RunDir.written` was at a checkpoint.

    Rollouts that are gone are named in a warning. A checkpoint of an earlier version may hold no hashes.

    Raises:
        DataError: rows are gone or changed; the file is named, with both hashes.
    """
    path, num_bytes = run / "metrics.jsonl", written["metrics_bytes"]
    size = path.stat().st_size if path.exists() else 0
    if num_bytes > size:
        raise DataError(
            f"{path} has {size} bytes, but {num_bytes} when the checkpoint was written: rows are gone; {PUT_BACK}"
        )
    with path.open("rb") as stream:
        stream.seek(max(0, num_bytes - 1))
        if num_bytes and stream.read(1) != b"\n":
            raise DataError(
                f"{path} was changed: byte {num_bytes}, where a checkpoint ended, is inside a line; {PUT_BACK}"
            )
    found = file_digest(path, num_bytes).hexdigest()
    if written.get("metrics_sha256", found) != found:
        raise DataError(
            f"{path} was changed: its first {num_bytes} bytes have SHA-256 {found}, and "
            f"{written['metrics_sha256']} when the run wrote them; {PUT_BACK}"
        )
    gone = []
    for name, expected in written.get("rollouts_sha256", {}).items():
        path = run / "rollouts" / name
        if not path.exists():
            gone.append(name)
        elif (found := file_digest(path).hexdigest()) != expected:
            raise DataError(
                f"{path} was changed: it has SHA-256 {found}, and {expected} when the run wrote it; {PUT_BACK}, "
                "or remove the file to go on without it"
            )
    if gone:
        names = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        logger.warning(
            "%s: the rollouts of %d finished iterations are gone (%s); the run goes on without them",
            run / "rollouts",
            len(gone),
            names,
        )
