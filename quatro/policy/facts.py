"""What a loaded model or its configuration says: stop tokens, context, head, formats of weights, and its chat template.

A chat template is a program that came with the model. transformers renders it in jinja2's sandbox, which keeps it from
files and from Python's insides. What it may write is bounded here, not how long it takes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import DataError, DivergedError, UsageError
from quatro.types import Prompt

if TYPE_CHECKING:
    import torch


# Stop tokens of the Qwen family that a tokenizer or generation config may leave out.
EXTRA_STOP_TOKENS = ("<|im_end|>", "<|endoftext|>")

# Where the configurations of Gemma, Cohere, Granite, Falcon-H1, MiniCPM and their like say what happens to logits.
LOGIT_SCALES = (
    "final_logit_softcapping",
    "logit_softcapping",
    "logits_soft_cap",
    "logit_scale",
    "logits_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "logits_multiplier",
    "dim_model_base",
)
MOST_ADDED = 1 << 16  # characters beside those of the messages, each of which may be escaped
MOST_ESCAPED = 8
_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")

Messages = Sequence[dict[str, str]]


def cast_weights(model: Any, dtype: torch.dtype, *, only_frozen: bool = False) -> Any:
    """``model`` with its floating-point parameters, or those that need no gradient, in ``dtype``; buffers stay.

    So do `from_pretrained` and DeepSpeed: rotary frequencies in bfloat16 would make another model.
    """
    for parameter in model.parameters():
        if parameter.is_floating_point() and not (only_frozen and parameter.requires_grad):
            parameter.data = parameter.data.to(dtype)
    return model


def product_weights(model: Any) -> set[torch.nn.Parameter]:
    """The weights of the linear layers of ``model``, save one that is the embedding as well.

    Autocast casts these weights anyway, so under it no number changes if they are cast before. It casts neither norms
    nor embeddings: in bfloat16 they would bring what flows between the layers to bfloat16 too.
    """
    import torch

    linear = (module.parameters(recurse=False) for module in model.modules() if isinstance(module, torch.nn.Linear))
    return {one for weights in linear for one in weights} - {model.get_input_embeddings().weight}


def copied(model: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A frozen copy of ``model`` with ``change(weight)`` in place of each weight; what was tied is tied in it too."""
    import torch

    with torch.no_grad():
        memo: dict[int, Any] = {id(one): torch.nn.Parameter(change(one), False) for one in model.parameters()}
    return copy.deepcopy(model, memo)


def hollow(weight: torch.Tensor) -> torch.Tensor:
    """A tensor of the shape and format of ``weight`` that has memory for one number."""
    return weight.new_empty(()).expand(weight.shape)


def first_difference(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> str | None:
    """The first weight that is absent, of another shape or unknown, for a message; None if there is none."""
    shapes, expected = ({name: tuple(value.shape) for name, value in one.items()} for one in (found, wanted))
    for name in [*expected, *shapes]:
        if shapes.get(name) != expected.get(name):
            return f"{name} is {shapes.get(name, 'absent')}, expected {expected.get(name, 'no such weight')}"
    return None


def refuse_non_finite(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises DivergedError if a tensor of a checkpoint holds NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise DivergedError(f"{name} holds NaN or infinity: no checkpoint is written")


def has_plain_head(model: Any) -> bool:
    """Whether logits are the output embedding of the base model's last hidden state, and nothing else.

    This holds for most models; some scale or cap their logits. If it holds, only the positions that matter need to
    reach the vocabulary. One forward pass over a few tokens finds out.
    """
    import torch

    if not hasattr(model, "base_model") or model.get_output_embeddings() is None:
        return False
    device = next(model.parameters()).device
    ids = torch.arange(min(8, model.get_input_embeddings().num_embeddings), device=device)[None]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        short = model.get_output_embeddings()(hidden)
    return whole.shape == short.shape and torch.allclose(whole, short, rtol=1e-3, atol=1e-4)


def enable_checkpointing(model: Any) -> Sequence[torch.nn.Module]:
    """Turns on gradient checkpointing; returns the layers that do it wherever their own `training` is True.

    Raises UsageError if the model has no such layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not model.supports_gradient_checkpointing or not layers:
        raise UsageError(
            f"model type {model.config.model_type!r} does not support gradient checkpointing; "
            "set policy.gradient_checkpointing=false and lower microbatch_tokens"
        )
    # Nothing random happens in a policy's forward pass, so there is no state of a generator to keep.
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    model.disable_input_require_grads()  # only the reentrant kind needs inputs with a gradient
    return layers


@contextmanager
def in_mode(modules: Sequence[torch.nn.Module], *, training: bool) -> Iterator[None]:
    """Inside, ``training`` of each of ``modules``, otherwise the opposite, is this; that of what they hold stays."""
    for module in modules:
        module.training = training
    try:
        yield
    finally:
        for module in modules:
            module.training = not training


def stop_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """Ids that end a response, ascending: every eos of tokenizer, config and generation config, and Qwen's two.

    Ids outside the model's vocabulary are left out: it cannot draw them.

    Raises DataError if an eos of the model's configuration is no id.
    """
    vocabulary = tokenizer.get_vocab()
    ids = {tokenizer.eos_token_id, *(vocabulary.get(token) for token in EXTRA_STOP_TOKENS)}
    for source in (model.config, getattr(model, "generation_config", None)):
        eos = getattr(source, "eos_token_id", None)
        found = eos if isinstance(eos, list | tuple) else [eos]
        if not all(i is None or type(i) is int for i in found):
            raise DataError(
                f"the {type(source).__name__} of {model.config.name_or_path or 'this model'} has eos_token_id {eos!r}; "
                "expected an id or a list of ids"
            )
        ids.update(found)
    size = model.get_input_embeddings().num_embeddings
    return tuple(sorted(i for i in ids if i is not None and 0 <= i < size))


def context_limit(model: Any) -> int | None:
    """How many tokens of prompt and response together ``model`` (or a model configuration) was built for.

    None if the configuration names no limit.
    """
    text_config = _text_config(model)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        limit = getattr(text_config, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def vocabulary_size(model: Any) -> int | None:
    """How many token ids ``model`` (or a model configuration) has, as far as the configuration says."""
    size = getattr(_text_config(model), "vocab_size", None)
    return size if isinstance(size, int) else None


def refuse_unknown_ids(prompts: Iterable[Prompt], tokenizer: Any, size: int | None) -> None:
    """Refuse a tokenizer of another model: an end of response or prompts that this one, of ``size`` ids, does not have.

    Raises DataError, which names the token, its id and the prompt.
    """
    ids = [("the end of a response", tokenizer.eos_token_id)]
    ids += [(f"prompt {one.id!r} of {one.benchmark}", max(one.token_ids)) for one in prompts]
    for where, id in ids:
        if size is not None and id >= size:
            raise DataError(
                f"{tokenizer.convert_ids_to_tokens(id)!r} ({where}) has the id {id} in the tokenizer of "
                f"{tokenizer.name_or_path or 'this model'}, and the model has {size} ids (vocab_size); give it the "
                "tokenizer that it was trained with"
            )


def _text_config(model: Any) -> Any:
    config = getattr(model, "config", model)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def chat_renderer(tokenizer: Any) -> Callable[..., str] | None:
    """What makes text of messages, generation prompt included; None where the tokenizer has no chat template.

    It also takes what else the chat template reads, by name.

    When called it raises DataError as `render_chat`.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    return lambda messages, **kwargs: render_chat(tokenizer, messages, add_generation_prompt=True, **kwargs)


def render_chat(tokenizer: Any, messages: Messages, *, add_generation_prompt: bool, **kwargs: Any) -> str:
    """The text that the tokenizer's chat template makes of ``messages``, with the values that it reads by name.

    Raises DataError if the template does not parse, raises, or writes too much; names its file.
    """
    most = MOST_ADDED + MOST_ESCAPED * (len(str(kwargs)) + sum(len(message["content"]) for message in messages))
    try:
        text = str(
            tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt, **kwargs
            )
        )
        text.encode()  # half of a surrogate pair is nothing that a tokenizer reads
        if len(text) <= most:
            return text
        reason = f"it writes {len(text):,} characters, expected {most:,} at most"
    except Exception as error:  # a program of a stranger's: whatever it raises means that it makes no prompt
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    name = tokenizer.name_or_path
    file = next((file for file in (Path(name, file) for file in _FILES) if name and file.is_file()), None)
    where = f"the chat template of {name}" if file is None else f"{file}: the chat template"
    raise DataError(
        f"{where} makes no prompt: {reason}; mend it, or take the problem alone "
        "(`--template plain`, in training `-s data.template=plain`)"
    )
