"""How the samples of a benchmark are drawn, and the sampling.json that keeps a folder consistent."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.errors import UsageError
from evals.files.belonging import DIGEST, file_sha256, refuse_other_run, refuse_other_tag
from evals.files.strict_json import read_document, refuse
from evals.files.whole import file_stem, write_json
from evals.samples.about import SAMPLING, refuse_misplaced
from quatro.types import Sampling

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Where samples come from. ``fingerprint`` is the model's `model_digest`, which tells two of a name apart.

    ``run_digest`` is the `lasting_digest` of the run, where one was sampled, and ``base_digest`` the `model_digest` of
    the model that it began with.
    ``checkpoint`` is the name of a run's checkpoint, such as `step-000020`; ``dtype`` is what the model computes in;
    ``device`` is recorded, and two of them in one folder are warned about. ``engine`` drew them: another one makes
    other texts of the same seeds. ``server`` is what is known of a server that did, and how it is asked.
    """

    model: str
    method: str | None = None
    fingerprint: str | None = None
    run_digest: str | None = None
    base_digest: str | None = None
    checkpoint: str | None = None
    dtype: str | None = None
    device: str | None = None
    engine: str = "transformers"
    server: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SampleSettings:
    """How the samples of one benchmark are drawn: what `sampling.json` holds.

    ``n`` is the number of samples per problem, ``template`` a name or a text. ``system`` is a system prompt in place of
    the template's own, ``thinking`` the markers of thoughts; ``chat_template_kwargs`` are told to the model's own one.
    """

    n: int
    sampling: Sampling
    seed: int
    template: str
    source: Source
    system: str | None = None
    thinking: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)


def claim_folder(folder: Path, benchmark: str, settings: SampleSettings) -> None:
    """Write sampling.json, or compare with the one that is there; a larger n is a continuation.

    Benchmarks of one folder share everything but n, max_tokens, the prompt template, the system prompt, what the chat
    template is told, the stop strings and the markers of thoughts. These stand under `benchmarks`, and `sampling` has
    what is the same for all of them and null for the rest.

    Raises:
        UsageError: another setting than n differs, or there are samples but nothing says how they were drawn.
        DataError: sampling.json cannot be read.
    """
    path = folder / SAMPLING
    source, sampling = settings.source, settings.sampling
    keys = ("model", "checkpoint", "fingerprint", "method", "dtype", "engine")
    head = {key: getattr(source, key) for key in keys} | {"seed": settings.seed}
    head[DIGEST] = source.run_digest or source.fingerprint
    shared = {key: getattr(sampling, key) for key in ("temperature", "top_p", "top_k")}
    own = {"n": settings.n, "max_tokens": sampling.max_new_tokens, "prompt": settings.template}
    own["stop"] = list(sampling.stop)
    kwargs = dict(settings.chat_template_kwargs) or None
    optional = {"system": settings.system, "chat_template_kwargs": kwargs, "thinking": settings.thinking}
    own |= {key: value for key, value in optional.items() if value is not None}  # written only where there is one
    found = _read_settings(path) if path.exists() else {"benchmarks": {}, "devices": [], "server": {}}
    known = set(map(file_stem, found["benchmarks"]))
    strange = [path for path in sorted(folder.glob("*.jsonl")) if path.stem not in known and path.stat().st_size]
    if strange:
        raise UsageError(
            f"{folder} holds {strange[0].name} but no sampling.json that says how it was drawn; choose another -o"
        )
    if path.exists():
        there = found["benchmarks"].get(benchmark, own)
        if head[DIGEST] is not None and found.get(DIGEST) == head[DIGEST]:
            found["model"] = head["model"]  # the same one, which was moved
        _refuse_other_settings(
            folder,
            {**found, **found["sampling"], **dict.fromkeys(optional), **there, **_named(found["server"])},
            {**head, **shared, **optional, **own, "n": there["n"], **_named(source.server)},
        )
        refuse_misplaced(folder / f"{file_stem(benchmark)}.jsonl")
        own["n"] = max(settings.n, there["n"])
        if source.device not in found["devices"]:
            logger.warning(
                "%s holds samples drawn on %s, and the rest is drawn on %s: the same seed may give another text",
                folder,
                ", ".join(map(str, found["devices"])),
                source.device,
            )
    folder.mkdir(parents=True, exist_ok=True)
    benchmarks = {**found["benchmarks"], benchmark: own}
    common = {
        key: own[key] if all(entry.get(key) == own[key] for entry in benchmarks.values()) else None for key in own
    }
    server = {} if source.server is None else {"server": dict(source.server)}
    document = {
        "schema": 1,
        **head,
        "base_digest": source.base_digest or source.fingerprint,
        "devices": list(dict.fromkeys([*found["devices"], source.device])),
        **server,
        "sampling": {"n": common["n"], **shared, **{key: value for key, value in common.items() if key != "n"}},
        "benchmarks": benchmarks,
    }
    refuse_other_run(path, head[DIGEST])
    refuse_other_tag(path, shared, source.checkpoint)
    write_json(path, document)


def note_drawn(samples: Path, benchmark: str) -> None:
    """Add the SHA-256 of ``samples``, which are complete, to the sampling.json beside them; a claim takes it away."""
    path = samples.with_name(SAMPLING)
    document = read_document(path)
    document["benchmarks"][benchmark]["sha256"] = file_sha256(samples)
    write_json(path, document)


def _named(server: Mapping[str, Any] | None) -> dict[str, Any]:
    return {f"server's {key}": value for key, value in (server or {}).items()}


def _read_settings(path: Path) -> dict[str, Any]:
    found = {"server": {}, **read_document(path)}
    kinds = {"benchmarks": dict, "sampling": dict, "devices": list, "server": dict}
    is_sound = all(isinstance(found.get(key), kind) for key, kind in kinds.items())
    entries = found["benchmarks"].values() if is_sound else ()
    if not is_sound or not all(isinstance(entry, dict) and type(entry.get("n")) is int for entry in entries):
        refuse(str(path), "it is not in the form that `quatro sample` writes; choose another --tag or -o")
    return found


def _refuse_other_settings(folder: Path, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    differing = [key for key in asked if there.get(key) != asked[key]]
    if differing:
        lines = "; ".join(f"{key}: {there.get(key)} there, {asked[key]} here" for key in differing)
        raise UsageError(f"{folder} holds samples drawn with other settings ({lines}); choose another --tag or -o")
