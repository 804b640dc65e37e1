"""What the output has to look like, from HTTP's several names for it."""

import json
from typing import Any

from coordinator.http.structure_parameters import StructuredOutputs, StructureParameters
from specpair.errors import InvalidFieldError
from specpair.v1 import structured_output_pb2 as pb

OTHER_NAMES = ("regex", "ebnf", "json_schema", "grammar")
"""Parameters of SGLang and llama.cpp. Without them the text would be another one, so they are not ignored."""


def structured_output_of(parameters: StructureParameters) -> pb.StructuredOutput | None:
    """The message; None if nothing is asked for. Raises InvalidFieldError if several parameters ask."""
    for name in OTHER_NAMES:
        if getattr(parameters, name) not in (None, ""):
            raise InvalidFieldError(name, "is not supported; use structured_outputs")
    found = {
        "response_format": _of_response_format(parameters),
        "structured_outputs": _of_structured_outputs(parameters.structured_outputs),
        "guided_json": _of_schema("guided_json", parameters.guided_json),
        "guided_regex": _of_text("guided_regex", "regex", parameters.guided_regex),
        "guided_grammar": _of_text("guided_grammar", "grammar", parameters.guided_grammar),
        "guided_choice": _of_choice("guided_choice", parameters.guided_choice),
    }
    given = {name: message for name, message in found.items() if message is not None}
    if len(given) > 1:
        first, second, *_ = given
        raise InvalidFieldError(second, f"cannot be combined with {first}")
    return next(iter(given.values()), None)


def structure_name(parameters: StructureParameters) -> str:
    """The parameter that says what the output has to look like; of tools without another one it is `tools`."""
    ours = [name for name in StructureParameters.model_fields if name not in OTHER_NAMES]
    given = [name for name in ours if getattr(parameters, name) is not None]
    asked = parameters.response_format
    if asked is not None and asked.type == "text":
        given.remove("response_format")
    others = ["tools"] if getattr(parameters, "tools", None) else ["structured_outputs"]
    return [*given, *others][0]


def schema_text(field: str, schema: str | dict[str, Any]) -> str:
    """The schema as JSON. Raises InvalidFieldError if it is nested too deeply or holds what is not text."""
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    except RecursionError:
        raise InvalidFieldError(field, "is nested too deeply") from None
    return check_text(field, text)


def _of_response_format(parameters: StructureParameters) -> pb.StructuredOutput | None:
    asked = parameters.response_format
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        found = _of_schema("response_format", asked.content)
        return pb.StructuredOutput(json_object=True) if found is None else found
    schema = None if asked.json_schema is None else asked.json_schema.content
    if schema is None:
        raise InvalidFieldError("response_format", "of type json_schema must have json_schema.schema")
    return _of_schema("response_format", schema)


def _of_structured_outputs(asked: StructuredOutputs | None) -> pb.StructuredOutput | None:
    if asked is None:
        return None
    found = [
        _of_schema("structured_outputs", asked.json_value),
        pb.StructuredOutput(json_object=True) if asked.json_object else None,
        _of_text("structured_outputs", "regex", asked.regex),
        _of_text("structured_outputs", "grammar", asked.grammar),
        _of_choice("structured_outputs", asked.choice),
    ]
    given = [message for message in found if message is not None]
    if len(given) != 1:
        raise InvalidFieldError("structured_outputs", f"has {len(given)} of json, regex, grammar, choice; it needs one")
    return given[0]


def _of_schema(field: str, schema: str | dict[str, Any] | None) -> pb.StructuredOutput | None:
    return None if schema is None else pb.StructuredOutput(json_schema=schema_text(field, schema))


def _of_text(field: str, kind: str, text: str | None) -> pb.StructuredOutput | None:
    return None if text is None else pb.StructuredOutput(**{kind: check_text(field, text)})  # type: ignore[arg-type]


def _of_choice(field: str, texts: list[str] | None) -> pb.StructuredOutput | None:
    if texts is None:
        return None
    return pb.StructuredOutput(choices=pb.Choices(texts=[check_text(field, text) for text in texts]))


def check_text(field: str, text: str) -> str:
    """The text. Raises InvalidFieldError if it has an unpaired surrogate, which no message can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidFieldError(field, "holds an unpaired surrogate, which is not a character") from None
    return text
