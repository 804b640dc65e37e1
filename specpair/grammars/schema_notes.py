"""Keywords of a JSON Schema that restrict nothing here."""

from typing import Any

FORMATS = frozenset(("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"))
"""The formats of strings that outputs follow. JSON Schema has any others as notes for whoever reads the value."""
VALUES = frozenset(("const", "default", "enum", "examples"))
"""Keywords of a schema that hold values, not schemas."""
NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
"""Keywords that hold schemas by names, which may be those of keywords."""


def without_notes(schema: Any) -> Any:
    """The schema without what restricts nothing, and would be refused: other formats, and `uniqueItems` that is
    false. Raises RecursionError for one that is nested too deeply."""
    if isinstance(schema, list):
        return [without_notes(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _kept(key, part) for key, part in schema.items() if not _is_note(key, part)}


def _kept(key: str, part: object) -> object:
    if key in VALUES:
        return part
    if key in NAMED and isinstance(part, dict):
        return {name: without_notes(schema) for name, schema in part.items()}
    return without_notes(part)


def _is_note(key: str, part: object) -> bool:
    is_other_format = key == "format" and isinstance(part, str) and part not in FORMATS
    return is_other_format or (key == "uniqueItems" and part is False)
