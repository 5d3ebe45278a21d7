"""The warm start of an embedded model, with a bar: it happens once and takes about a minute."""

from __future__ import annotations

from quatro_cli.output import output


def ensure_model(name: str) -> str:
    """The folder of ``name``, made first if it is an embedded model that the cache does not hold."""
    from quatro.policy.embedded import is_cached, recipe_of, resolve_model

    if is_cached(name):
        return resolve_model(name)
    output.info(f"{name} is not in the cache: teaching it its task (once, about a minute)")
    with output.progress("warm start", recipe_of(name).steps) as bar:
        return resolve_model(name, progress=lambda step, steps, loss: bar(step, f"loss {loss:.2f}"))
