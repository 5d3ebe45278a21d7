"""Loads models and tokenizers from a folder or the Hub, and saves them; errors name what is missing."""

from __future__ import annotations

import copy
import logging
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evals.errors import DataError, MissingError, require
from evals.files.strict_json import read_document
from evals.files.whole import naming
from evals.text import visible
from quatro.policy import embedded
from quatro.policy.facts import cast_weights, refuse_non_finite
from quatro.policy.model_files import ADAPTER_CONFIG, changed_by, place_of, require_part

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

# What save_pretrained writes for a tokenizer without a class of its own. AutoTokenizer would put the model type's
# pre-tokeniser (Qwen's, say) in place of the one in tokenizer.json: other ids for the same text.
PLAIN_TOKENIZER_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
GENERATION_CONFIG = "generation_config.json"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

T = TypeVar("T")


def import_generation() -> None:
    """Imports transformers' generation and loss code as if scikit-learn and scipy were not installed.

    They, and pandas, would make every start more than a second longer, and only the adaptive threshold of assisted
    decoding and the losses of object detection use them. Call this before a model class or `AutoTokenizer` is imported.
    """
    is_imported = "transformers.generation.candidate_generator" in sys.modules
    if is_imported or find_spec("torch") is None:  # without torch there are tokenizers only
        return
    from unittest import mock  # it imports asyncio, which a start without torch does without

    import transformers.utils

    with mock.patch.multiple(transformers.utils, is_sklearn_available=lambda: False, is_scipy_available=lambda: False):
        import transformers.generation.candidate_generator
        import transformers.loss.loss_utils


def load_model_config(name: str) -> PreTrainedConfig:
    """The model configuration of a folder or Hub id; of an adapter, that of its model.

    Raises:
        MissingError: no such folder, no ``config.json`` in it, or the Hub cannot be reached and has no cached copy.
        DataError: the file is there and unreadable.
    """
    import_generation()
    from transformers import AutoConfig

    base = place_of(name, "model")
    found: PreTrainedConfig = tried(
        base, "model configuration", lambda: AutoConfig.from_pretrained(base, trust_remote_code=False)
    )
    found._attn_implementation = None  # what is best here, and not a kernel that the file asks for
    return found


def load_shape(name: str) -> PreTrainedModel:
    """The causal language model of a folder or Hub id without memory behind its weights, and how it generates.

    Raises as `load_model_config`, and DataError if no causal language model can be made of it.
    """
    import_generation()
    from transformers import AutoModelForCausalLM

    shape = _shape(AutoModelForCausalLM, name)
    if (found := load_generation_config(place_of(name, "model"))) is not None:
        shape.generation_config = found
    return shape


def shape_of(name: str) -> PreTrainedModel:
    """The model ``name``, made or still to be made, without memory behind its weights; raises as `load_shape`."""
    import torch

    if (shape := name if embedded.is_cached(name) else embedded.shape_name(name)) is not None:
        return load_shape(embedded.resolve_model(shape))
    with torch.device("meta"):
        return embedded.make_model(embedded.recipe_of(name))


def tokenizer_of(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of the model ``name``, made or still to be made; raises as `load_tokenizer`."""
    if (shape := name if embedded.is_cached(name) else embedded.shape_name(name)) is not None:
        return load_tokenizer(embedded.resolve_model(shape))
    recipe = embedded.recipe_of(name)
    return embedded.make_tokenizer(recipe.max_positions, recipe.vocabulary)


def _shape(loader: Any, name: str) -> PreTrainedModel:
    import torch

    config, place = load_model_config(name), place_of(name, "model")
    with torch.device("meta"):
        shape: PreTrainedModel = tried(place, "model", lambda: loader.from_config(config, trust_remote_code=False))
    return shape


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or Hub id, exactly as saved even where it is not the one of the model type.

    Raises:
        MissingError: no such folder, no tokenizer in it, or the Hub cannot be reached and has no cached copy.
        DataError: the files are unreadable, or the tokenizer has no eos token.
    """
    tokenizer = _read_tokenizer(name)
    if tokenizer.eos_token_id is None:
        raise DataError(
            f"the tokenizer of {place_of(name, 'tokenizer')} has no eos token, so no response could ever end by "
            'itself; name one as "eos_token" in its tokenizer_config.json'
        )
    return tokenizer


def _read_tokenizer(name: str) -> PreTrainedTokenizerBase:
    own = place_of(name, "tokenizer")
    named = settings_in(own, "tokenizer_config.json").get("tokenizer_class")
    if named in PLAIN_TOKENIZER_CLASSES and Path(own, "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast

        loader: Any = PreTrainedTokenizerFast
    else:
        import_generation()
        from transformers import AutoTokenizer

        loader = AutoTokenizer
    tokenizer: PreTrainedTokenizerBase = tried(
        own, "tokenizer", lambda: loader.from_pretrained(own, trust_remote_code=False)
    )
    if not isinstance(length := tokenizer.model_max_length, int | float):
        raise DataError(f"tokenizer_config.json in {own}: model_max_length is {length!r}; expected a number")
    return tokenizer


def load_model(name: str, dtype: torch.dtype, device: torch.device | str) -> PreTrainedModel:
    """The causal language model of a folder or Hub id, in eval mode; of an adapter, its model with it merged in.

    Raises:
        MissingError: no such folder, no weights in it, or the Hub cannot be reached and has no cached copy.
        DataError: the files are unreadable, weights of the architecture are absent from them, or an adapter does not
            fit its model.
        UsageError: an adapter on the Hub, which must be a folder here.
    """
    import_generation()
    from transformers import AutoModelForCausalLM

    if (changed := changed_by(name)) is not None:
        place_of(name, "weights")  # ends where adapters change one another in a circle
        return _merged(name, changed, dtype, device)
    model = _read_model(AutoModelForCausalLM, name, dtype, device)
    found = load_generation_config(name)
    model.generation_config = _savable(model.generation_config if found is None else found)
    return model


def load_headed(
    name: str, dtype: torch.dtype, device: torch.device | str, head: str = "ForSequenceClassification"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with this ``head``, if any, in eval mode, and its tokenizer, which may have no eos token.

    Raises as `load_model`; a language model lacks the head of a classifier.
    """
    import transformers

    return _read_model(getattr(transformers, f"AutoModel{head}"), name, dtype, device), _read_tokenizer(name)


def num_classifier_parameters(name: str) -> int:
    """How many parameters the sequence classifier has; loads no weights. Raises as `load_model_config`."""
    from transformers import AutoModelForSequenceClassification

    return _shape(AutoModelForSequenceClassification, name).num_parameters()


def _plain(record: logging.LogRecord) -> bool:
    """Reports on weights quote the names of tensors in a stranger's file: nothing in them acts on the terminal."""
    record.msg, record.args = visible(_COLOURS.sub("", record.getMessage()), keep="\t\n"), ()
    return True


def _read_model(loader: Any, name: str, dtype: torch.dtype, device: torch.device | str) -> PreTrainedModel:
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(_plain)
    config = load_model_config(name)
    require_part(name, "weights")
    model, report = tried(
        name,
        "model",
        lambda: loader.from_pretrained(
            name, config=config, dtype=dtype, output_loading_info=True, trust_remote_code=False
        ),
    )
    absent = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))  # of BERT without a head
    if absent:
        # transformers would fill them with random numbers and go on.
        raise DataError(
            f"the weights of {name} lack {len(absent)} of the model's tensors ({', '.join(absent[:3])}"
            f"{', ...' if len(absent) > 3 else ''}); download or save the complete model"
        )
    complete: PreTrainedModel = model.to(device).eval()
    return complete


def save_folder(model: Any, folder: Path, tokenizer: Any, *, adapter_of: str | None = None) -> None:
    """A plain Hugging Face folder of ``model``, whose weights are all there; or only its adapter of that model.

    Raises:
        DivergedError: a weight is not finite; nothing is written.
        OSError: it cannot be written.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as hf_logging

    from quatro.policy import lora

    refuse_non_finite({f"weight {name}": parameter for name, parameter in model.named_parameters()})
    hf_logging.disable_progress_bar()
    try:
        with naming(folder):
            if adapter_of is not None:
                lora.save(model, folder, base_model=adapter_of)
            else:
                model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:
        # Of a full disk safetensors tells with a type of its own, and tokenizers with a bare Exception.
        if type(error) not in (SafetensorError, Exception):
            raise
        raise OSError(f"{folder} cannot be written: {error}") from error


def load_generation_config(name: str) -> GenerationConfig | None:
    """The ``generation_config.json`` of a folder or Hub id, which may name more stop tokens; None where there is none.

    transformers goes on without it if it cannot be read, and responses would no longer end where they should.

    Raises DataError if the file is there and unreadable.
    """
    from transformers import GenerationConfig

    if Path(name).is_dir():
        settings = settings_in(name, GENERATION_CONFIG)
        return tried(name, "generation_config.json", lambda: GenerationConfig.from_dict(settings)) if settings else None
    with suppress(OSError):  # the Hub has none, and the model's own configuration says it all
        return GenerationConfig.from_pretrained(name)
    return None


def _savable(config: GenerationConfig) -> GenerationConfig:
    """As transformers will save it: published models name a temperature without saying that they sample at all."""
    from transformers import GenerationConfig

    sampled = copy.deepcopy(config)
    sampled.do_sample = True
    for candidate in (config, sampled):
        with suppress(ValueError):
            candidate.validate(strict=True)
            return candidate
    # Samplers of quatro take nothing else from it.
    return GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id)


def _merged(name: str, changed: str, dtype: torch.dtype, device: torch.device | str) -> PreTrainedModel:
    """In float32, then cast: the change that an adapter makes may be less than the last digit of ``dtype``."""
    import torch

    require("peft", f"{name} is an adapter, and reading it")
    from peft import PeftModel

    model = load_model(changed, torch.float32, "cpu")
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = embedding.weight if head is not None and head.weight is embedding.weight else None

    def read() -> tuple[Any, Any]:
        adapted: Any = PeftModel.from_pretrained(model, name, torch_device="cpu")
        # Once more for the report: the first time peft warns of absent tensors and is silent about those left over.
        return adapted, adapted.load_adapter(name, "default", torch_device="cpu")

    adapted, report = tried(name, "adapter", read)
    if tied is not None:
        _refuse_adapted(tied, adapted, name)
    merged: Any = tried(name, "adapter", lambda: adapted.merge_and_unload())
    for keys, what in ((report.missing_keys, "absent from it"), (report.unexpected_keys, "unknown there")):
        if keys:
            first = ", ".join(key.replace(".default.", ".") for key in sorted(keys)[:3])
            raise DataError(
                f"the adapter in {name} does not fit {changed}: {len(keys)} tensors {what} ({first}"
                f"{', ...' if len(keys) > 3 else ''}); name the model it was made for as "
                f'"base_model_name_or_path" in {Path(name, ADAPTER_CONFIG)}, or copy the adapter again'
            )
    # peft left them frozen.
    whole: PreTrainedModel = cast_weights(merged, dtype).to(device).requires_grad_(True).eval()
    return whole


def _refuse_adapted(tied: torch.nn.Parameter, adapted: Any, name: str) -> None:
    """Merged, the change of a head would become one of the embedding too, or the other way round."""
    from peft.tuners.trainable_tokens import TrainableTokensLayer
    from peft.tuners.tuners_utils import BaseTunerLayer

    for layer, module in adapted.get_base_model().named_modules():
        # Tokens trained on their own peft changes in both places.
        if not isinstance(module, BaseTunerLayer) or isinstance(module, TrainableTokensLayer):
            continue
        if getattr(module.get_base_layer(), "weight", None) is tied:
            raise DataError(
                f"the adapter in {name} changes {layer}, whose weight is input embedding and head at once, so it "
                "cannot be merged; train one that leaves it out"
            )


def settings_in(name: str, file: str) -> dict[str, Any]:
    """The JSON document called ``file`` in the folder ``name``; empty where there is none."""
    path = Path(name, file)
    if not path.is_file():
        return {}
    try:
        return read_document(path, allow_non_finite=True)
    except DataError as error:
        raise DataError(f"{error}; copy the file again from where the model came") from error


def tried(name: str, what: str, load: Callable[[], T]) -> T:
    """What ``load`` gives, ``what`` of the model ``name``; raises DataError of a folder, MissingError of a Hub id."""
    # transformers, tokenizers and safetensors each raise types of their own (some are bare Exception), with one
    # meaning here: these files do not make a model.
    try:
        return load()
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        if Path(name).is_dir():
            raise DataError(f"the {what} in {name} cannot be read: {type(error).__name__}: {reason}") from error
        raise MissingError(
            f"the {what} of {name!r} is neither a folder here nor in the Hub's cache, and fetching it "
            f"failed: {reason}; on a machine with network run `hf download {name}`, or give a local folder"
        ) from error
