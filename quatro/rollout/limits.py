"""How long each response may become, and at which temperatures vLLM draws them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from evals.errors import DataError, UsageError
from quatro.types import Prompt

logger = logging.getLogger(__name__)

MAX_TEMPERATURE = 2.0  # vLLM refuses more
MIN_TEMPERATURE = 0.01  # vLLM raises smaller ones, except 0, to this


def response_limits(prompts: Sequence[Prompt], max_new_tokens: int, *, context: int | None) -> list[int]:
    """Tokens that a response to each prompt may have: ``max_new_tokens``, or what ``context`` leaves of them.

    Raises:
        DataError: a prompt is empty or fills the context.
    """
    limits = []
    for prompt in prompts:
        length = len(prompt.token_ids)
        if length == 0:
            raise DataError(f"prompt {prompt.id!r} of {prompt.benchmark!r} has no tokens; expected at least one")
        if context is not None and length >= context:
            raise DataError(
                f"prompt {prompt.id!r} of {prompt.benchmark!r} has {length} tokens, which leaves no room for a "
                f"response in the model's context of {context}; shorten it or set data.too_long=skip "
                f"with data.max_prompt_tokens below {context}"
            )
        limits.append(max_new_tokens if context is None else min(max_new_tokens, context - length))
    num_cut = sum(limit < max_new_tokens for limit in limits)
    if num_cut:
        logger.warning(
            "%d of %d prompts leave fewer than max_new_tokens=%d tokens in the model's context of %s; "
            "their responses end where the context does (finish_reason length)",
            num_cut,
            len(limits),
            max_new_tokens,
            context,
        )
    return limits


def check_temperature(name: str, value: float) -> None:
    """Raises UsageError for a temperature that vLLM refuses or changes."""
    if not (value == 0.0 or MIN_TEMPERATURE <= value <= MAX_TEMPERATURE):
        raise UsageError(
            f"vLLM samples at temperatures from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, found {name} {value:g}; "
            "choose one of them, or the engine transformers"
        )
