"""Whether files in a run are of that run: by what run and files hold, and not by where they lie.

A run has a digest of its settings in status.json. What is made of a run repeats it: sampling.json, which also has the
SHA-256 of the samples beside it, and results. Files without one, of earlier versions or other programs, pass.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.strict_json import open_lines, read_document

STATUS = "status.json"
DIGEST = "source_digest"  # in sampling.json and results: that of the run that was sampled, or of the model
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?)"
# A folder of samples that is named after how they were drawn: temperature, top_p, top_k, step and whether inside.
TAG = re.compile(rf"T{_NUMBER}-p{_NUMBER}(?:-k([0-9]+))?(?:-step([0-9]+)(-inside)?)?")


def run_of(file: Path) -> Path | None:
    """The run directory that ``file`` lies in, such as in its samples/TAG or results; None where there is none."""
    return next((folder for folder in file.resolve().parents[:4] if (folder / "config.yaml").is_file()), None)


def refuse_other_run(file: Path, digest: str | None) -> None:
    """Raises DataError if ``file`` lies in a run, and the ``digest`` that it holds is that of another source."""
    run = run_of(file)
    own = None if run is None else read_or_empty(run / STATUS).get("run_digest")
    if digest is not None and own is not None and digest != own:
        raise DataError(
            f"{file} is not of the run that it lies in: its {DIGEST} is {digest}, and run_digest in {run}/{STATUS} is "
            f"{own}; put back what belongs there. `quatro doctor {run}` looks at every file of the run"
        )


def refuse_other_tag(file: Path, sampling: Mapping[str, Any], checkpoint: str | None = None) -> None:
    """Raises DataError if ``file`` lies in samples/TAG, and TAG says otherwise than what ``file`` holds.

    ``sampling`` is how samples were drawn, ``checkpoint`` the name of what drew them; null where that is not known.
    """
    folder = file.absolute().parent
    tag = TAG.fullmatch(folder.name) if folder.parent.name == "samples" else None
    if tag is None:
        return
    temperature, top_p, top_k, step, inside = tag.groups()
    named = {"temperature": float(temperature), "top_p": float(top_p), "top_k": int(top_k or 0)}
    wrong = [
        f"{key} {held:g}, not {value:g}"
        for key, value in named.items()
        if (held := sampling.get(key)) is not None and f"{held:g}" != f"{value:g}"
    ]
    if step is not None and checkpoint not in (None, f"step-{step}{inside or ''}"):
        wrong.append(f"checkpoint {checkpoint}, not step {int(step)}")
    if wrong:
        raise DataError(
            f"{file} does not say what the name of its folder says: {'; '.join(wrong)}; put back the folder that "
            f"belongs there, or rename this one"
        )


def file_sha256(file: Path) -> str:
    """SHA-256 of ``file``, unpacked if its name ends in .gz, which is read once while its size and time stay."""
    status = file.stat()
    return _sha256(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _sha256(file: Path, size: int, mtime_ns: int) -> str:
    try:
        with open_lines(file) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return "unknown, as the file is damaged"


def read_or_empty(path: Path) -> dict[str, Any]:
    """The document in a file that only informs: where it is damaged or not there, it says nothing."""
    try:
        return read_document(path) if path.is_file() else {}
    except (DataError, FileNotFoundError):
        return {}
