"""Writes a run's weights as a plain Hugging Face folder with a model card: verified first, whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.benchmarks.catalogue import find_benchmark
from evals.errors import DataError, QuatroError, UsageError
from evals.files.strict_json import read_document
from evals.files.whole import fsync_directory, naming, open_like_folder, write_text, write_whole
from evals.results.reading import read_sources
from evals.samples.exporting import hub_results
from quatro.config import Config
from quatro.policy.gguf import SMOLLM2_ID
from quatro.policy.model_files import ADAPTER_CONFIG, base_of, check_model
from quatro.runs import checkpoint
from quatro.runs.directory import require_run
from quatro.runs.export.model_card import Facts, model_card
from quatro.runs.identity import load_from, read_config
from quatro.runs.status import read_environment
from quatro.tasks.word_problems import MODELS

logger = logging.getLogger(__name__)

ExportProgress = Callable[[int, int], None]  # (bytes on the disk, bytes in all)

# Where transformers notes the folder that something was loaded from: a path of this machine.
_ORIGIN_KEYS = ("_name_or_path", "name_or_path")


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, the checkpoint's iteration, the number format of the weights."""

    path: Path
    step: int
    dtype: str


def export_model(
    run: Path,
    folder: Path,
    *,
    step: checkpoint.Step | None = None,
    progress: ExportProgress | None = None,
) -> Exported:
    """Write the newest checkpoint of ``run``, or that of ``step``, to ``folder`` as a plain Hugging Face model.

    The weights are kept bit by bit. An adapter is merged into the model that it was trained on, in float32. Results of
    the checkpoint that lie in the run go into `.eval_results`.

    Raises:
        UsageError: no run, no such step, or ``folder`` holds something.
        DataError: the run has no checkpoint, a file of it is missing, extra or changed, or the model that an adapter
            was trained on is another now.
        MissingError: the model that an adapter was trained on is not here.
        OSError: the folder cannot be written; nothing of it is left.
    """
    require_run(run)
    final = Path(os.path.realpath(folder))
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if not is_empty and (folder.exists() or folder.is_symlink()):
        kind = "is not empty" if folder.is_dir() else "is no folder"
        raise UsageError(f"{folder} {kind}, and nothing is overwritten: name another with -o, or remove it first")
    config, found = read_config(run), load_from(run, step)
    is_adapter = (found.model / ADAPTER_CONFIG).is_file()
    if not is_adapter and not (found.model / "config.json").is_file():
        raise DataError(f"{found.model} is not a complete model: it has no config.json")
    if is_adapter:
        check_model(str(found.model), trained_on=found.trained_on)
    if (note := checkpoint.unfinished_note(found)) is not None:
        logger.warning(note)
    results = [one for one in read_sources([run]).results if one.result.checkpoint == found.path.name]
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        unfinished.mkdir()
        stored = _write_model(found.model, unfinished, progress)
        facts = gather_facts(run, config, found.step, name=final.name, dtype=stored, is_inside=found.is_inside)
        write_text(unfinished / "README.md", model_card(facts))
        for name, content in hub_results(results).items():
            write_whole(unfinished / name, [content])
        fsync_directory(unfinished)
        os.rename(unfinished, final)  # over an empty folder; it fails if somebody has filled that meanwhile
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    fsync_directory(final.parent)
    return Exported(folder, found.step, stored)


def _write_model(source: Path, target: Path, progress: ExportProgress | None) -> str:
    """Write the model of a folder, an adapter merged into its base; returns the number format of the weights.

    The files of a whole model are copied, which needs neither torch nor the model's memory.
    """
    stored = "float32"
    if (source / ADAPTER_CONFIG).is_file():
        import torch

        from quatro.policy.loading import load_model, load_tokenizer, save_folder

        save_folder(load_model(str(source), torch.float32, "cpu"), target, load_tokenizer(str(source)))
    else:
        config = read_document(source / "config.json", allow_non_finite=True)
        stored = str(config.get("dtype") or config.get("torch_dtype") or stored)
        for path in (path for path in source.rglob("*") if path.is_file()):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with naming(copy):
                shutil.copyfile(path, copy)
    done = 0
    files = [path for path in sorted(target.rglob("*")) if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if path.name in ("config.json", "tokenizer_config.json"):
            document = read_document(path, allow_non_finite=True)
            if (kept := _without_origins(document)) != document:
                write_text(path, json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
        open_like_folder(path)
        with naming(path), path.open("rb+") as stream:
            os.fsync(stream.fileno())
        done += path.stat().st_size
        if progress is not None:
            progress(min(done, total), total)
    return stored


def _without_origins(found: Any) -> Any:
    """A configuration without the paths of this machine that transformers notes in it, in nested ones too."""
    if not isinstance(found, Mapping):
        return found
    return {
        key: _without_origins(value)
        for key, value in found.items()
        if key not in _ORIGIN_KEYS or not isinstance(value, str)
    }


def gather_facts(run: Path, config: Config, step: int, *, name: str, dtype: str, is_inside: bool = False) -> Facts:
    """What a run directory knows about its checkpoint of ``step``; ``is_inside``: inside the iteration after it."""
    data = [one.hub[0].id for s in config.data.sources if (one := find_benchmark(s.source)) is not None and one.hub]
    return Facts(
        name=name,
        config=config,
        step=step,
        dtype=dtype,
        is_inside=is_inside,
        base_model=_base_model(config.model),
        datasets=data,
        environment=read_environment(run),
    )


def _base_model(model: str) -> str | None:
    """The id on the Hub of ``model``, or of the model below the adapter that it is; None for a folder or embedded."""
    try:
        base = base_of(model)
    except QuatroError:  # it was there when the run began
        return None
    if base in MODELS:
        return SMOLLM2_ID
    is_id = re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", base, re.ASCII) is not None
    return base if is_id and not Path(base).exists() else None
