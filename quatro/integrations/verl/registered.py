"""Ends before verl begins if verl does not know our method: `python -m quatro.integrations.verl.registered quatro`.

verl loads plug-ins while it is imported and reports one that fails at log level DEBUG only. It goes on until it looks
for the advantage estimator, by when it has asked a cluster for GPUs and loaded the model.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from importlib import metadata

from evals.errors import MissingError, QuatroError, UsageError, how_to_install
from quatro.integrations.verl.methods import METHOD_OF

GROUP, ENTRY, PLUGIN = "verl.plugins", "quatro", "quatro.integrations.verl.plugin"
CHOICE = "VERL_USE_EXTERNAL_PLUGINS"  # verl's: auto (which is all), none, or names


def require_registered(estimator: str, loss: str) -> None:
    """Import verl as it is imported in a run, and look for an advantage estimator and a policy loss by their names.

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
        for ask, name in ((core.get_adv_estimator_fn, estimator), (core.get_policy_loss_fn, loss)):
            try:
                ask(name)
            except (KeyError, ValueError):
                if name not in METHOD_OF:
                    known = ", ".join(sorted(METHOD_OF))
                    raise UsageError(f"neither verl nor quatro has a method {name}; quatro's are {known}") from None
                raise MissingError(f"verl does not know the method {name}: {_cause()}") from None


def _cause() -> str:
    choice = os.environ.get(CHOICE, "auto")
    if choice != "auto" and ENTRY not in choice.split(","):
        return f"{CHOICE} is {choice!r}, which leaves our plug-in out; unset it, or set it to auto"
    if not any(entry.value == PLUGIN for entry in metadata.entry_points(group=GROUP)):
        return (
            "quatro is not installed in verl's environment, so verl finds no plug-in of it; run there: "
            f"{how_to_install()}"
        )
    try:
        importlib.import_module(PLUGIN)
    except Exception as error:  # whatever kept it from being loaded
        return f"the plug-in {PLUGIN} cannot be imported: {type(error).__name__}: {error}"
    return (
        f"this version of verl loads no plug-ins of the group {GROUP}; install the version that docs/clusters.md names"
    )


def main() -> None:
    """Exit code 0 if verl knows the method that the command line names, else 2 or 3 with a line that says why."""
    try:
        require_registered(sys.argv[1], sys.argv[1])
    except QuatroError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
