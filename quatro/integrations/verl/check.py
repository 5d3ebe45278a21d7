"""verl's own validation of a command line, before a cluster is asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from evals.errors import MissingError, UsageError
from quatro.integrations.verl.registered import require_registered


def check_overrides(overrides: Sequence[str]) -> str:
    """The version of verl that takes ``overrides``: its keys, its validation of batch sizes, and our plug-in.

    Raises:
        MissingError: verl is not installed here, or does not know our method.
        UsageError: verl refuses them; the message is verl's.
    """
    with contextlib.redirect_stdout(sys.stderr):  # verl prints
        try:
            import verl
        except ImportError as error:
            raise MissingError(
                f"--check needs verl here, which cannot be imported ({error}); run it in verl's environment, with "
                "quatro installed there"
            ) from error
        from hydra import compose, initialize_config_module
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import omega_conf_to_dataclass, validate_config

        try:
            with initialize_config_module("verl.trainer.config", version_base=None):
                config = compose("ppo_trainer", overrides=list(overrides))
            loss = config.actor_rollout_ref.actor.policy_loss.loss_mode
            require_registered(config.algorithm.adv_estimator, loss)
            validate_config(config, need_reference_policy(config), need_critic(config))
            omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        except MissingError:
            raise
        except Exception as error:  # Hydra's, OmegaConf's and assertions: whatever verl refuses with
            raise UsageError(f"verl {verl.__version__} refuses it: {type(error).__name__}: {error}") from error
    return str(verl.__version__)
