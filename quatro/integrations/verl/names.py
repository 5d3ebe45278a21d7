"""What our methods are called in verl, and where verl has keys of its own for what is none of a method's."""

from __future__ import annotations

from quatro.methods import METHODS

# verl has methods of its own called grpo, gspo, gpg and cispo: ours have quatro_ before their name.
METHOD_OF = {"_".join(dict.fromkeys(("quatro", name))): name for name in METHODS}
VERL_NAME_OF = {name: verl_name for verl_name, name in METHOD_OF.items()}

# Keys of our configuration that somebody may look for beside the method's.
ELSEWHERE = {
    "inner_updates": "verl's is actor_rollout_ref.actor.ppo_epochs, a whole number; auto cannot be expressed",
    "max_inner_updates": "verl has no inner_updates auto",
    "kl": "verl's keys are actor_rollout_ref.actor.use_kl_loss, kl_loss_coef and kl_loss_type",
    "audit": "verl has no forward pass after the last update; actor/kl/new_old is measured on each mini-batch",
}
