"""Where a text stands in a structured output depends on its tokens alone, and a mask has the tokens that may come."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from specpair.errors import InvalidGrammarError
from specpair.grammars import grammar
from specpair.grammars.compiling import GrammarCompiler
from specpair.grammars.grammar import ANY, GrammarState, RowMask
from specpair.options import StructuredOutput, StructureKind
from tests.worded_models import END, TEXTS, worded_tokenizer

WORDS = ("a", "abd", "abcd", "bcbc", "cab", "cabab")
COMPILER = GrammarCompiler(worded_tokenizer().to_str().encode(), len(TEXTS), [0])


def structured(kind: StructureKind, source: object) -> StructuredOutput:
    return StructuredOutput(kind=kind, source=source if isinstance(source, str) else json.dumps(source))


CHOICES = structured(StructureKind.CHOICES, WORDS)


def state(asked: StructuredOutput = CHOICES) -> GrammarState:
    return GrammarState(COMPILER.compile(asked))


def tokens_of(mask: RowMask, vocab_size: int = len(TEXTS)) -> set[int] | None:
    if mask.bits is None:
        return None
    return {token for token in range(vocab_size) if mask.bits[token // 8] >> token % 8 & 1}


def may_follow(tokens: Sequence[int]) -> set[int] | None:
    """What may come after these tokens, from the definition; None where they are no beginning of a word."""
    text = "".join(TEXTS[token] for token in tokens)
    if not any(word.startswith(text) for word in WORDS):
        return None
    longer = {i for i in range(1, len(TEXTS)) if any(word.startswith(text + TEXTS[i]) for word in WORDS)}
    return longer | {0} if text in WORDS else longer


def is_forced(tokens: Sequence[int]) -> bool:
    """Whether the text can go on in one way alone: then only the tokenizer's own tokens for it may come."""
    text = "".join(TEXTS[token] for token in tokens)
    return text not in WORDS and len({word[: len(text) + 1] for word in WORDS if word.startswith(text)}) == 1


texts = st.lists(st.integers(0, len(TEXTS) - 1), max_size=5).map(tuple)


def test_every_mask_is_what_the_definition_says() -> None:
    beginnings: list[tuple[int, ...]] = [()]
    seen = 0
    while beginnings:
        tokens = beginnings.pop()
        allowed = tokens_of(state().masks(tokens, [()])[0])
        assert allowed is not None
        expected = may_follow(tokens)
        assert expected is not None
        assert allowed <= expected, tokens
        assert allowed == expected or is_forced(tokens), tokens
        assert allowed
        seen += 1
        beginnings += [(*tokens, token) for token in allowed if token]
    assert seen > 12


@settings(max_examples=60)
@given(asked=st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_a_state_that_went_anywhere_answers_as_a_new_one(asked: list[tuple[tuple[int, ...], list[tuple[int, ...]]]]):
    """Rolled back, ahead again, along proposals that do not fit: like a new one for the same tokens."""
    used = state()
    for output, paths in asked:
        try:
            expected = state().masks(output, paths)
        except InvalidGrammarError:
            with pytest.raises(InvalidGrammarError, match="does not fit"):
                used.masks(output, paths)
            continue
        assert used.masks(output, paths) == expected
        assert used.fork().masks(output, paths) == expected


def test_rows_after_a_token_that_does_not_fit_are_left_alone() -> None:
    d, a = TEXTS.index("d"), TEXTS.index("a")
    masks = state().masks((), [(), (d,), (d, a), (a,)])
    assert (masks[1], masks[2]) == (ANY, ANY)
    assert tokens_of(masks[0]) is not None
    assert tokens_of(masks[3]) == may_follow((a,))


def test_a_text_ends_only_where_it_is_complete() -> None:
    a, b = TEXTS.index("a"), TEXTS.index("b")
    masks = state().masks((a,), [(), (b,), (0,), (b, 0)])
    assert 0 in (tokens_of(masks[0]) or ())
    assert 0 not in (tokens_of(masks[1]) or ())
    assert masks[2:] == [ANY, ANY]
    for tokens in ((a, b, 0), (a, 0, b)):  # not complete; goes on after its end
        with pytest.raises(InvalidGrammarError):
            state().masks(tokens, [()])


def test_a_text_that_no_token_continues_is_stuck() -> None:
    asked = structured(StructureKind.CHOICES, ["ax"])  # no token has an x
    masks = state(asked).masks((), [(), (TEXTS.index("a"),)])
    assert any(mask.is_stuck for mask in masks)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (StructureKind.REGEX, "("),
        (StructureKind.REGEX, "(?=a)b"),
        (StructureKind.GRAMMAR, "begin: a"),
        (StructureKind.GRAMMAR, "start: undefined"),
        (StructureKind.GRAMMAR, 'root ::= "a" undefined'),
        (StructureKind.JSON_SCHEMA, "{"),
        (StructureKind.JSON_SCHEMA, "[1]"),
        (StructureKind.JSON_SCHEMA, '{"type": "nonsense"}'),
        (StructureKind.JSON_SCHEMA, '{"type": "array", "uniqueItems": true}'),
        (StructureKind.JSON_SCHEMA, '{"$ref": "http://localhost/x"}'),
        (StructureKind.JSON_SCHEMA, '{"items":' * 7_000),
        (StructureKind.JSON_SCHEMA, '{"const": NaN}'),
        (StructureKind.JSON_SCHEMA, '{"const": 1e999}'),
        (StructureKind.JSON_SCHEMA, '{"const": "\\ud800"}'),
        (StructureKind.JSON_SCHEMA, '{"const": ' + "[" * 980 + "]" * 980 + "}"),
    ],
)
def test_what_cannot_be_compiled_is_refused(kind: StructureKind, source: str) -> None:
    with pytest.raises(InvalidGrammarError):
        COMPILER.compile(structured(kind, source))


BUNDLED = Path(__file__).parents[4] / "models" / "bundled" / "target"
BYTES = GrammarCompiler((BUNDLED / "tokenizer.json").read_bytes(), 4096, [0])


def follows(schema: object, text: str) -> bool:
    """Whether a text is whole under a schema."""
    tokenizer = tokenizers.Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
    state = GrammarState(BYTES.compile(structured(StructureKind.JSON_SCHEMA, schema)))
    tokens = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    for i, token in enumerate(tokens):
        if token not in (tokens_of(state.masks(tokens[:i], [()])[0], 4096) or ()):
            return False
    return 0 in (tokens_of(state.masks(tokens, [()])[0], 4096) or ())


def test_what_restricts_nothing_in_a_schema_is_left_out() -> None:
    """As pydantic writes it for a path, a secret, bytes."""
    path = {"type": "string", "format": "path"}
    schema = {
        "type": "object",
        "properties": {"format": path, "more": {"anyOf": [{"type": "array", "items": path, "uniqueItems": False}]}},
        "required": ["format", "more"],
        "additionalProperties": False,
    }
    assert follows(schema, '{"format":"a/b","more":["c"]}')
    assert follows({"const": {"format": "path"}}, '{"format":"path"}'), "a value is no schema"
    assert not follows({"const": {"format": "path"}}, "{}")
    named = {"properties": {"default": path, "uniqueItems": False}, "required": ["default"]}
    assert follows(named, '{"default":"a"}'), "a property may be called like a keyword"
    assert not follows(named, '{"default":"a","uniqueItems":1}'), "and be forbidden"


def test_what_restricts_something_is_followed_or_refused() -> None:
    date = {"type": "string", "format": "date"}
    assert follows(date, '"2026-01-31"') and not follows(date, '"soon"')
    with pytest.raises(InvalidGrammarError, match="uniqueItems"):
        follows({"type": "array", "uniqueItems": True}, "[]")


def test_who_sends_gbnf_is_told_which_form_is_read() -> None:
    with pytest.raises(InvalidGrammarError, match="must be in the Lark form of llguidance"):
        COMPILER.compile(structured(StructureKind.GRAMMAR, 'root ::= "a" | "b"'))
    with pytest.raises(InvalidGrammarError, match="cannot be used") as refused:
        COMPILER.compile(structured(StructureKind.GRAMMAR, "start: undefined"))
    assert "Lark" not in str(refused.value)


def test_a_grammar_without_any_text_is_refused() -> None:
    with pytest.raises(InvalidGrammarError, match="allows no text"):
        COMPILER.compile(structured(StructureKind.JSON_SCHEMA, {"$ref": "#"})).check_start()


def test_a_grammar_that_names_the_end_inside_of_a_text_does_not_end_it_there() -> None:
    asked = structured(StructureKind.GRAMMAR, f'start: "a" (<[0]> "b" | "c" {END} "b" | "cd")')
    a, c, d = (TEXTS.index(letter) for letter in "acd")
    masks = state(asked).masks((a,), [(), (c,), (c, d)])
    assert [tokens_of(mask) for mask in masks] == [{c}, {d}, {0}]
    only = structured(StructureKind.GRAMMAR, 'start: "a" <[0]> "b"')
    assert state(only).masks((a,), [()])[0].is_stuck


@pytest.mark.parametrize("text", ["a\x7fb", "a\x00b", "\n", '"', "\\", "/"])
def test_choices_may_have_any_character(text: str) -> None:
    assert COMPILER.compile(structured(StructureKind.CHOICES, [text])) is not None


def test_a_refused_expression_comes_with_the_reason() -> None:
    with pytest.raises(InvalidGrammarError, match="unclosed group"):
        COMPILER.compile(structured(StructureKind.REGEX, "("))


@given(texts, st.integers(0, 6))
def test_forced_tokens_are_those_that_masks_leave_alone(tokens: tuple[int, ...], most: int) -> None:
    wanted: list[int] = []
    while len(wanted) < most and len(allowed := tokens_of(state().masks((), [(*tokens, *wanted)])[0]) or ()) == 1:
        wanted += allowed
    assert state().forced(tokens, most) == wanted


def test_a_text_may_be_forced_to_its_end() -> None:
    asked = structured(StructureKind.REGEX, "abcd(a|b)")
    assert [TEXTS[token] for token in state(asked).forced((), 9)] == ["abc", "d"]
    assert state(asked).forced((7, 4, 1), 9) == [0]
    assert state(asked).forced((7, 4, 1, 0), 9) == []


def test_masks_that_take_too_long_end_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "MASKS_SECONDS", -1.0)
    with pytest.raises(InvalidGrammarError, match="too complex"):
        state().masks((), [()])
    assert state().forced((), 5) == []


def test_a_draft_does_without_masks_that_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = state()
    assert slow.next_bits(()) is not None
    monkeypatch.setattr(grammar, "DRAFT_MASK_SECONDS", -1.0)
    assert slow.next_bits(()) is not None
    assert slow.next_bits(()) is None
    assert slow.masks((), [()])[0].bits is not None


@pytest.mark.parametrize(
    ("source", "problem"), [("{", "the schema is not JSON"), ("[]", "the schema must be an object")]
)
def test_what_is_no_schema_is_said_without_a_second_name(source: str, problem: str) -> None:
    """Whoever shows it puts the field, parameter or flag in front that the schema came by."""
    with pytest.raises(InvalidGrammarError, match=f"^structured_output: {problem}"):
        COMPILER.compile(structured(StructureKind.JSON_SCHEMA, source))
