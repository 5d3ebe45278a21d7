"""Asks verl whether it knows our methods, before a cluster is asked for.

verl loads plug-ins while it is imported and reports one that fails at log level DEBUG only. It goes on until it looks
for the advantage estimator, by when it has asked for GPUs and loaded the model. So the command that we print begins
with `python -m quatro.integrations.verl.check quatro`, which ends with an error where verl would not know the method.
"""

import contextlib
import importlib
import sys

from evals.errors import MissingError, QuatroError, UsageError, how_to_install
from quatro.integrations.verl.methods import METHOD_OF

PLUGIN = "quatro.integrations.verl.plugin"


def require_registered(name: str) -> None:
    """Import verl as it is imported in a run, and look for the advantage estimator and the policy loss ``name``.

    Raises:
        MissingError: verl cannot be imported, or it does not know one of ours; the message says why and what to do.
        UsageError: neither verl nor quatro has such a method.
    """
    with contextlib.redirect_stdout(sys.stderr):  # verl prints
        try:
            core = importlib.import_module("verl.trainer.ppo.core_algos")
        except ImportError as error:
            raise MissingError(
                f"verl cannot be imported here ({error}); run this in verl's environment, with quatro installed there"
            ) from error
    for ask in (core.get_adv_estimator_fn, core.get_policy_loss_fn):
        try:
            ask(name)
        except (KeyError, ValueError):
            if name not in METHOD_OF:
                known = ", ".join(sorted(METHOD_OF))
                raise UsageError(f"neither verl nor quatro has a method {name}; quatro's are {known}") from None
            raise MissingError(f"verl does not know the method {name}: {_cause()}") from None


def _cause() -> str:
    try:
        importlib.import_module(PLUGIN)
    except Exception as error:  # whatever kept it from being loaded
        return f"the plug-in {PLUGIN} cannot be imported: {type(error).__name__}: {error}"
    return (
        f"it has not loaded our plug-in; install quatro in verl's environment ({how_to_install()}), leave "
        "VERL_USE_EXTERNAL_PLUGINS unset, and take the version of verl that docs/clusters.md names"
    )


def main() -> None:
    """Exit code 0 if verl knows the method that the command line names, else 2 or 3 with a line that says why."""
    try:
        require_registered(sys.argv[1])
    except QuatroError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
