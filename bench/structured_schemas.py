"""JSON Schemas for structured outputs: nested objects, enums, patterns, arrays, references, unions. All their texts are
of bounded length, so that an output which ends by itself has to be valid."""

from random import Random
from typing import Any

PATTERNS = ("^[A-Z][a-z]{2,6}$", r"^[0-9]{2}-[0-9]{3}$", "^(red|green|blue)[0-9]?$", r"^[a-f]{4}$")
FORMATS = ("date", "uuid", "ipv4")
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
COMPACT = {"x-guidance": {"whitespace_flexible": False}}

Schema = dict[str, Any]


def schemas(count: int, *, is_compact: bool = False, seed: int = 0) -> list[Schema]:
    """So many, always the same ones. Compact ones allow no white space."""
    return [_document(Random(seed * 1000 + index), is_compact) for index in range(count)]


def _document(random: Random, is_compact: bool) -> Schema:
    shared = {"item": _object(random, 1), "kind": {"enum": random.sample(WORDS, 3)}}
    schema = _object(random, 2)
    schema["properties"] |= {"kind": {"$ref": "#/$defs/kind"}, "first": {"$ref": "#/$defs/item"}}
    schema["required"] = sorted({*schema["required"], "kind"})
    return {"$defs": shared, **schema, **(COMPACT if is_compact else {})}


def _value(random: Random, depth: int) -> Schema:
    makers = [_string, _pattern, _integer, _enum, _simple]
    if depth:
        makers += [lambda random: _object(random, depth - 1), lambda random: _array(random, depth - 1)]
        makers.append(lambda random: _union(random, depth - 1))
    return random.choice(makers)(random)


def _object(random: Random, depth: int) -> Schema:
    names = random.sample(WORDS, random.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: _value(random, depth) for name in names},
        "required": [name for name in names if random.random() < 0.7],
        "additionalProperties": False,
    }


def _array(random: Random, depth: int) -> Schema:
    fewest = random.randint(0, 1)
    return {"type": "array", "items": _value(random, depth), "minItems": fewest, "maxItems": fewest + 2}


def _union(random: Random, depth: int) -> Schema:
    return {"anyOf": [_value(random, depth), {"type": "null"}, _integer(random)]}


def _string(random: Random) -> Schema:
    return {"type": "string", "minLength": random.randint(0, 2), "maxLength": random.randint(3, 10)}


def _pattern(random: Random) -> Schema:
    if random.random() < 0.3:
        return {"type": "string", "format": random.choice(FORMATS)}
    return {"type": "string", "pattern": random.choice(PATTERNS)}


def _integer(random: Random) -> Schema:
    low = random.randint(-20, 20)
    return {"type": "integer", "minimum": low, "maximum": low + random.randint(0, 1000)}


def _enum(random: Random) -> Schema:
    return {"enum": [*random.sample(WORDS, 2), random.randint(0, 9), None]}


def _simple(random: Random) -> Schema:
    return random.choice([{"type": "boolean"}, {"const": random.choice(WORDS)}, {"type": "null"}])
