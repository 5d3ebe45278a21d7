"""The keys as text for people and JSON for editors, as model.py, blocks.py, methods/ and rewards/ define them."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from quatro.config.blocks import SourceConfig, block_of
from quatro.config.errors import EXTENDS
from quatro.config.load import basis, method_basis
from quatro.config.model import Config, method_class
from quatro.config.sources import EXTENDS_MEANS
from quatro.config.yaml_text import scalar_text
from quatro.methods.base import Method
from quatro.registry import METHODS, REWARDS

HEAD = "# key: type = default, where the default comes from (nothing: our own); the meaning is below"


def schema_text(method: str | None = None) -> str:
    """Every key with its type, default and meaning; the keys of each method and the options of rewards come last.

    Of a ``method``, which may be your own, its keys alone. Raises UsageError if there is no such method.
    """
    if method is not None:
        return "\n".join([HEAD, *_method_lines(method)]) + "\n"
    lines = [HEAD]
    lines += [f"{EXTENDS}: text\n    {EXTENDS_MEANS}", *_model_lines(Config)]
    lines += [
        "",
        "# data.prompts.0, the first of a list; the others are alike",
        *_model_lines(SourceConfig, "data.prompts.0."),
    ]
    for name in METHODS:
        lines += ["", *_method_lines(name)]
    for name in REWARDS:
        if options := list(_model_lines(REWARDS[name].Options, "reward.options.")):
            lines += ["", f"# reward.name: {name}", *options]
    return "\n".join(lines) + "\n"


def _method_lines(name: str) -> list[str]:
    found = method_class(name)
    return [f"# method.name: {name}", *_model_lines(found, "method.")]


def schema_json(method: str | None = None) -> dict[str, Any]:
    """The JSON schema of a file; `methods` holds one schema per method name, `rewards` one of each's options.

    A file that extends another needs no key. Of a ``method``, which may be your own, the schema of its block alone.

    Raises UsageError if there is no such method.
    """
    if method is not None:
        return method_class(method).model_json_schema()
    document = Config.model_json_schema()
    document["properties"] = {EXTENDS: {"type": "string", "description": EXTENDS_MEANS}, **document["properties"]}
    document["anyOf"] = [{"required": document.pop("required")}, {"required": [EXTENDS]}]
    reward = document["properties"]["reward"]
    reward["anyOf"] = [{"type": "string"}, {"$ref": reward.pop("$ref")}]  # a name is short for a block
    methods = {name: METHODS[name].model_json_schema() for name in METHODS}
    return {
        **document,
        "methods": methods,
        "rewards": {name: REWARDS[name].Options.model_json_schema() for name in REWARDS},
    }


def _model_lines(model: type[BaseModel], above: str = "") -> Iterator[str]:
    properties = model.model_json_schema(mode="validation")["properties"]
    for key, field in model.model_fields.items():
        block = block_of(field)
        if block is None or field.default is None:
            head = f"{above}{key}: {_schema_type(properties[key])}{_default_text(model, f'{above}{key}', field)}"
            yield f"{head}\n    {field.description}" if field.description else head
            extra = field.json_schema_extra
            meanings = extra.get("meanings") if isinstance(extra, dict) else None
            if isinstance(meanings, dict):
                yield from (f"      {name}  {meaning}" for name, meaning in meanings.items())
        if block is not None:
            yield from _model_lines(block, f"{above}{key}.")


def _default_text(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    if field.is_required():
        return ", required"
    default = field.get_default(call_default_factory=False)
    if issubclass(model, Method):
        whose = method_basis(model, key.removeprefix("method."))
    else:
        whose = basis(key, default)
    return f" = {scalar_text(default)}{f', {whose}' if whose else ''}"


_NAMES = {"integer": "int", "number": "float", "boolean": "bool", "string": "text", "null": "null", "object": "block"}


def _schema_type(schema: dict[str, Any]) -> str:
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(map(_schema_type, choices))
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"[{', '.join(_schema_type(item) for item in schema.get('prefixItems', [schema.get('items', {})]))}]"
    return _NAMES.get(schema.get("type", ""), "block") + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    words = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    return "".join(f" {sign} {schema[word]}" for word, sign in words.items() if word in schema)
