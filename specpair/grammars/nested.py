"""Structured outputs as parts of a grammar, in the Lark form of llguidance."""

import json

from specpair.grammars.compiling import grammar_text
from specpair.options import StructuredOutput


def nested(structured: StructuredOutput) -> str:
    """What may stand on the right of a rule for this structured output. Its own rules stay its own. Raises
    InvalidGrammarError."""
    (grammar,) = json.loads(grammar_text(structured))["grammars"]
    schema = grammar["json_schema"]
    if schema is None:
        return f"%lark {{\n{grammar['lark_grammar']}\n}}"
    return f"%json {json.dumps(schema, ensure_ascii=False)}"
