"""The first training of an embedded model, which a bar shows."""

from __future__ import annotations

from collections.abc import Callable

from quatro_cli.output import output


def ensure_model(name: str, progress: Callable[[int, int, float], None] | None = None) -> str:
    """The folder of ``name``, made first if it is an embedded model that the cache does not hold.

    That is its warm start, which happens once and takes about a minute: a bar shows it, or ``progress``.
    """
    from quatro.policy.embedded import is_cached, recipe_of, resolve_model

    if is_cached(name):
        return resolve_model(name)
    output.info(f"{name} is not in the cache: teaching it its task (once, about a minute)")
    if progress is not None:
        return resolve_model(name, progress=progress)
    with output.progress("warm start", recipe_of(name).steps) as bar:
        return resolve_model(name, progress=lambda step, steps, loss: bar(step, f"loss {loss:.2f}"))
