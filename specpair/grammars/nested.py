"""Structured outputs as parts of a grammar."""

import json

from specpair.grammars.compiling import grammar_text
from specpair.options import StructuredOutput, StructureKind


def nested(structured: StructuredOutput) -> str:
    """What may stand on the right of a rule for this structured output. Its own rules stay its own. Raises
    InvalidGrammarError."""
    text = grammar_text(structured)
    if structured.kind in (StructureKind.CHOICES, StructureKind.GRAMMAR):
        return _braced(text)
    (grammar,) = json.loads(text)["grammars"]
    if structured.kind is StructureKind.REGEX:
        return _braced(grammar["lark_grammar"])
    return "%json " + json.dumps(grammar["json_schema"], ensure_ascii=False, separators=(",", ":"))


def _braced(rules: str) -> str:
    return f"%lark {{\n{rules}\n}}"
