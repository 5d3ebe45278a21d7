"""The making of a model that lies nowhere yet, which a bar shows."""

from collections.abc import Callable

from quatro_cli.output import output


def ensure_model(name: str, progress: Callable[[int, int, str], None] | None = None) -> str:
    """The folder of ``name``, made first if it is a model that is made here and the cache does not hold.

    That happens once, and a bar shows it, or ``progress``.
    """
    from quatro.policy.embedded import is_cached, making_of, resolve_model

    if is_cached(name):
        return resolve_model(name)
    output.info(f"{name} is not in the cache: {making_of(name)}")
    if progress is not None:
        return resolve_model(name, progress=progress)
    with output.progress(f"making {name}", 100) as bar:
        return resolve_model(name, progress=lambda done, total, what: bar(100 * done // max(total, 1), what))


def ensure_shape(*names: str | None) -> None:
    """Fetches what a look at these models needs before they are made: the model that a supervised start begins with."""
    from quatro.policy.embedded import is_cached, shape_name

    for name in filter(None, names):
        if not is_cached(name) and (shape := shape_name(name)):
            ensure_model(shape)
