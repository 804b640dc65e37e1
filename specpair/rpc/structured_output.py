"""Structured outputs as messages and as plain data."""

import json

from specpair.errors import InvalidFieldError
from specpair.options import MAX_CHOICES, MAX_STRUCTURE_BYTES, StructuredOutput, StructureKind, check_range
from specpair.v1 import structured_output_pb2 as pb

FIELD = "structured_output"


def structured_output_from_proto(message: pb.StructuredOutput) -> StructuredOutput | None:
    """The structured output; None if none is set. Raises InvalidFieldError."""
    name = message.WhichOneof("kind")
    if name is None:
        return None
    kind = StructureKind(name)
    if kind is StructureKind.CHOICES:
        return StructuredOutput(kind=kind, source=_read_choices(list(message.choices.texts)))
    if kind is StructureKind.JSON_OBJECT:
        if not message.json_object:
            raise InvalidFieldError(f"{FIELD}.json_object", "is false; leave it out instead")
        return StructuredOutput(kind=kind)
    return StructuredOutput(kind=kind, source=getattr(message, name))


def structured_output_to_proto(structured: StructuredOutput | None) -> pb.StructuredOutput | None:
    """The message; None without a structured output."""
    if structured is None:
        return None
    if structured.kind is StructureKind.CHOICES:
        return pb.StructuredOutput(choices=pb.Choices(texts=json.loads(structured.source)))
    if structured.kind is StructureKind.JSON_OBJECT:
        return pb.StructuredOutput(json_object=True)
    message = pb.StructuredOutput()
    setattr(message, structured.kind.value, structured.source)
    return message


def _read_choices(texts: list[str]) -> str:
    check_range(f"{FIELD}.choices count", len(texts), 1, MAX_CHOICES)
    if not all(texts):
        raise InvalidFieldError(f"{FIELD}.choices", "has an empty text")
    check_range(f"{FIELD}.choices bytes", sum(len(text.encode()) for text in texts), 1, MAX_STRUCTURE_BYTES // 2)
    return json.dumps(texts, ensure_ascii=False)
