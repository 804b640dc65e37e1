"""Compiles structured outputs for one vocabulary, with the library llguidance.

Its matchers follow a text token by token, and say which tokens of the vocabulary may come next. Without torch and
numpy: the coordinator's checks run it too.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import llguidance

from specpair.errors import InvalidGrammarError
from specpair.grammars.grammar import Grammar
from specpair.grammars.lark import quoted
from specpair.grammars.schema_notes import without_notes
from specpair.options import StructuredOutput, StructureKind

MOST_COMPILED = 64
"""Compiled grammars that are kept for the next sequence with the same structured output."""
REASON = "error: "
GBNF = "::="
OTHER_GRAMMAR = "; a grammar must be in the Lark form of llguidance, with a rule start, and this looks like GBNF"
"""llama.cpp's form is not converted: the library's converter changes what some grammars mean."""
MOST_WORDS = 300
"""Characters of a compiler's explanation that are passed on."""
SPACE = r"[ \t\n]{0,16}"
"""White space in JSON, wherever it is allowed. Without a limit a model could go on with it for ever."""
LIMITS = {
    "initial_lexer_fuel": 500_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""A compilation takes at most some tenths of a second and megabytes, a mask some milliseconds."""


class GrammarCompiler:
    """The structured outputs of one model. Any thread may use it."""

    def __init__(self, tokenizer_json: bytes, vocab_size: int, eos_token_ids: Sequence[int]):
        """`eos_token_ids`, at least one, end a text. Raises ValueError for a tokenizer that the library cannot read."""
        self.vocab_size = vocab_size
        self._eos = tuple(sorted(set(eos_token_ids)))
        self._tokens = llguidance.LLTokenizer(tokenizer_json.decode(), n_vocab=vocab_size, eos_token=list(self._eos))
        self._limits = llguidance.LLParserLimits(**LIMITS)
        self._compiled: OrderedDict[StructuredOutput, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, structured: StructuredOutput) -> Grammar:
        """The grammar. Raises InvalidGrammarError."""
        with self._lock:
            if (known := self._compiled.get(structured)) is not None:
                self._compiled.move_to_end(structured)
                return known
        try:
            matcher = llguidance.LLMatcher(self._tokens, grammar_text(structured), log_level=0, limits=self._limits)
        except (ValueError, RecursionError) as error:  # a number that is none in JSON, half a character, great depth
            raise InvalidGrammarError(f"cannot be used: {first_line(str(error))}") from None
        if matcher.is_error():
            hint = OTHER_GRAMMAR if structured.kind is StructureKind.GRAMMAR and GBNF in structured.source else ""
            raise InvalidGrammarError(f"cannot be used: {first_line(matcher.get_error())}{hint}")
        made = Grammar(matcher, self.vocab_size, self._eos)
        with self._lock:
            self._compiled[structured] = made
            while len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        return made


def grammar_text(structured: StructuredOutput) -> str:
    """The structured output in the library's own form. Raises InvalidGrammarError."""
    match structured.kind:
        case StructureKind.JSON_SCHEMA:
            return _of_schema(_read_schema(structured.source))
        case StructureKind.JSON_OBJECT:
            return _of_schema({"type": "object"})
        case StructureKind.REGEX:
            return llguidance.LLMatcher.grammar_from_regex(structured.source)
        case StructureKind.CHOICES:
            texts = sorted(set(json.loads(structured.source)))
            return llguidance.LLMatcher.grammar_from_lark("start: " + " | ".join(map(quoted, texts)))
        case StructureKind.GRAMMAR:
            return llguidance.LLMatcher.grammar_from_lark(structured.source)


def first_line(explanation: str) -> str:
    """The beginning of a compiler's explanation, and the reason if that comes after a drawing of the place."""
    lines = [line.strip() for line in explanation.splitlines() if line.strip()]
    words = lines[0].removesuffix("<non-verbose/>").strip() if lines else "no reason is known"
    reasons = [line.removeprefix(REASON) for line in lines[1:] if line.startswith(REASON)]
    if words.endswith(":") and reasons:
        return f"{words[:MOST_WORDS]} {reasons[0][:MOST_WORDS]}"
    return words[:MOST_WORDS]


def _of_schema(schema: object) -> str:
    own = schema.get("x-guidance") if isinstance(schema, dict) else None
    allows_none = isinstance(own, dict) and own.get("whitespace_flexible") is False
    defaults: Any = {} if allows_none else {"whitespace_pattern": SPACE}
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(without_notes(schema)), defaults=defaults)


def _read_schema(source: str) -> object:
    try:
        schema = json.loads(source)
    except (ValueError, RecursionError):
        raise InvalidGrammarError("the schema is not JSON, or is nested too deeply") from None
    if not isinstance(schema, dict | bool):
        raise InvalidGrammarError("the schema must be an object")
    return schema
