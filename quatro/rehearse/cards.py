"""The cards that `--rehearse` knows by name, and those of a user's own: a file of measured constants, or numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evals.errors import UsageError
from evals.files.strict_json import read_document
from quatro.rehearse.device import H100, Card

GIB, TERA = 1 << 30, 1e12
# Of data sheets nine tenths of the bandwidth and three quarters of the operations in 16 bits, as the H100 gave.
CARDS = {
    "h100": H100,
    "h200": replace(H100, name="NVIDIA H200", memory=139 * GIB, bandwidth=4.3e12),
    "a100-80gb": Card("NVIDIA A100 80GB", 80 * GIB, 1.8e12, 234e12, 15e12),
    "l40s": Card("NVIDIA L40S", 45 * GIB, 0.78e12, 270e12, 60e12),
    "rtx-4090": Card("NVIDIA GeForce RTX 4090", 24 * GIB, 0.9e12, 124e12, 60e12),
}
# What may be said of a card: the field of Card, and how much of its unit one is.
FIELDS = {
    "memory": ("memory", GIB),
    "bandwidth": ("bandwidth", TERA),
    "tflops": ("flops", TERA),
    "float32_tflops": ("float32_flops", TERA),
    "call_us": ("call_s", 1e-6),
    "wait_us": ("wait_s", 1e-6),
    "efficiency": ("efficiency", 1.0),
}
LENGTHS = ("prompt", "response")  # in tokens


def read_card(text: str) -> tuple[Card, dict[str, int]]:
    """The card that ``text`` names, and the lengths of prompts and responses, where it says them.

    ``text`` is a name or a file of constants, and then what is to be different: `h100`, `h100,response=600`,
    `gpu-constants.json`, `memory=24,bandwidth=0.9,tflops=124` (in GiB and TB/s; what is not said is the H100's).

    Raises:
        UsageError: no such card or key, or a value that is no number above 0.
        DataError: the file cannot be read.
    """
    first, *parts = text.split(",")
    card, said = CARDS.get(first, H100), dict[str, Any]()
    if first not in CARDS and "=" in first:
        card, parts = replace(H100, name="a card of your own"), [first, *parts]
    elif first not in CARDS and Path(first).is_file():
        said = read_document(Path(first))
        card = replace(H100, name=str(said.pop("name", first)))
    elif first not in CARDS:
        raise UsageError(
            f"--rehearse: found {first!r}; expected {', '.join(CARDS)}, a file that `make bench-gpu` wrote, or "
            "memory=GIB,bandwidth=TB/S,tflops=N"
        )
    lengths = dict[str, int]()
    for key, value in {**said, **dict(part.partition("=")[::2] for part in parts)}.items():
        try:
            number = float(value) if key in FIELDS or key in LENGTHS else 0.0
        except (TypeError, ValueError):
            number = 0.0
        if not 0 < number < 1e6:
            known = ", ".join([*FIELDS, *LENGTHS])
            raise UsageError(f"--rehearse: found {key}={value}; expected a number above 0 for one of {known}")
        if key in LENGTHS:
            lengths[key] = max(1, round(number))
        else:
            field, unit = FIELDS[key]
            card = replace(card, **{field: type(getattr(card, field))(number * unit)})
    return card, lengths
