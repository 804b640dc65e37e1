"""Where a text begins after a prompt, and what its structured output becomes there."""

import json

import pytest
from tokenizers import Tokenizer

from coordinator.reasoning_form import REASONING_FORMS, ReasoningParser
from coordinator.requests.chat import character_count
from coordinator.requests.reasoning import Beginning, Reasoning, beginning_of, with_reasoning
from specpair.errors import InvalidFieldError
from specpair.grammars.compiling import GrammarCompiler
from specpair.grammars.grammar import Grammar
from specpair.options import MAX_STRUCTURE_BYTES, StructuredOutput, StructureKind
from specpair.v1 import coordinator_service_pb2 as pb
from tests.scripted_models import scripted_tokenizer

QWEN3, DEEPSEEK_R1 = REASONING_FORMS[ReasoningParser.QWEN3], REASONING_FORMS[ReasoningParser.DEEPSEEK_R1]
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
OPENED = "<|im_start|>assistant\n<think>\n"


@pytest.mark.parametrize(
    ("prompt", "continued", "qwen3", "deepseek_r1"),
    [
        ("<|im_start|>assistant\n", "", Beginning.BEFORE, Beginning.INSIDE),
        ("<think>in a question\n<|im_start|>assistant\n", "", Beginning.BEFORE, Beginning.INSIDE),
        (OPENED, "", Beginning.INSIDE, Beginning.INSIDE),
        (CLOSED, "", Beginning.AFTER, Beginning.AFTER),
        (OPENED, " \n", Beginning.INSIDE, Beginning.INSIDE),
        (f"{OPENED}a", "a", Beginning.AFTER, Beginning.AFTER),
        (f"{OPENED}a", "<think>\na", Beginning.CONTINUED, Beginning.CONTINUED),
        (OPENED, "<think>\n", Beginning.CONTINUED, Beginning.CONTINUED),
        (f"{CLOSED}a", "<think>\n\n</think>\n\na", Beginning.AFTER, Beginning.AFTER),
    ],
)
def test_the_end_of_the_prompt_decides(prompt: str, continued: str, qwen3: Beginning, deepseek_r1: Beginning) -> None:
    assert beginning_of(QWEN3, prompt, continued) is qwen3
    assert beginning_of(DEEPSEEK_R1, prompt, continued) is deepseek_r1


STRUCTURES = [
    StructuredOutput(kind=StructureKind.JSON_SCHEMA, source='{"const": "a/b"}'),
    StructuredOutput(kind=StructureKind.REGEX, source=r'"a/b"'),
    StructuredOutput(kind=StructureKind.CHOICES, source=r'["\"a/b\"", "c"]'),
    StructuredOutput(kind=StructureKind.GRAMMAR, source='start: TEXT answer\nTEXT: /"a/\nanswer: "/b\\""  # }'),
]
ANSWER = '"a/b"'


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    tokenizer = scripted_tokenizer({})
    return GrammarCompiler(tokenizer.to_str().encode(), tokenizer.get_vocab_size(), [0])


def allows(grammar: Grammar, text: str, tokenizer: Tokenizer | None = None) -> bool:
    """Whether the grammar allows this text as a whole."""
    tokens = (tokenizer or scripted_tokenizer({})).encode(text).ids
    matcher = grammar.matcher()
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("structured", STRUCTURES, ids=lambda structured: structured.kind)
@pytest.mark.parametrize(
    ("beginning", "allowed", "forbidden"),
    [
        (
            Beginning.BEFORE,
            [ANSWER, f"<think>é <x</think>{ANSWER}", f"\n<think></think>\n\n{ANSWER}"],
            ["", "<think>", "<think></think>", f"x</think>{ANSWER}", f"x<think></think>{ANSWER}"],
        ),
        (Beginning.INSIDE, [f"x\n</think>{ANSWER}", f"<think></think>\n{ANSWER}"], [ANSWER, "x</think>", ""]),
        (Beginning.CONTINUED, [f"x</think>{ANSWER}"], [ANSWER]),
        (Beginning.AFTER, [ANSWER], [f"<think></think>{ANSWER}", ""]),
    ],
    ids=lambda entry: entry.name if isinstance(entry, Beginning) else "",
)
def test_a_structure_begins_after_the_reasoning(
    compiler: GrammarCompiler,
    structured: StructuredOutput,
    beginning: Beginning,
    allowed: list[str],
    forbidden: list[str],
) -> None:
    grammar = compiler.compile(with_reasoning(structured, Reasoning(form=QWEN3, beginning=beginning)))
    assert [text for text in allowed if not allows(grammar, text)] == []
    assert [text for text in forbidden if allows(grammar, text)] == []


@pytest.mark.parametrize("beginning", [Beginning.BEFORE, Beginning.INSIDE])
def test_reasoning_without_an_answer_is_allowed_on_request(compiler: GrammarCompiler, beginning: Beginning) -> None:
    reasoning = Reasoning(form=QWEN3, beginning=beginning, may_lack_answer=True)
    grammar = compiler.compile(with_reasoning(STRUCTURES[1], reasoning))
    assert allows(grammar, "<think>x") and allows(grammar, f"<think>x</think>{ANSWER}")
    assert not allows(grammar, "<think>x</think>")


@pytest.mark.parametrize("is_special", [True, False])
@pytest.mark.parametrize("beginning", [Beginning.BEFORE, Beginning.INSIDE])
@pytest.mark.parametrize("may_lack_answer", [True, False])
def test_reasoning_opens_and_ends_with_tokens_of_its_own(
    is_special: bool, beginning: Beginning, may_lack_answer: bool
) -> None:
    tags = (QWEN3.begin, QWEN3.end)
    tokenizer = scripted_tokenizer({}, *((tags, ()) if is_special else ((), tags)))
    ids = tokenizer.get_vocab()
    mark_ids = {tag: ids[tag] for tag in tags}
    compiler = GrammarCompiler(tokenizer.to_str().encode(), tokenizer.get_vocab_size(), [0])
    reasoning = Reasoning(form=QWEN3, beginning=beginning, mark_ids=mark_ids, may_lack_answer=may_lack_answer)
    grammar = compiler.compile(with_reasoning(STRUCTURES[1], reasoning))
    assert len(tokenizer.encode(f"<think>x</think>{ANSWER}").ids) == 3 + len(ANSWER)
    assert allows(grammar, f"<think>x</think>{ANSWER}", tokenizer)
    assert allows(grammar, f"\n<think></think>\n{ANSWER}", tokenizer)
    assert allows(grammar, f"x</think>{ANSWER}", tokenizer) is (beginning is Beginning.INSIDE)
    assert allows(grammar, "<think>x", tokenizer) is may_lack_answer
    assert not allows(grammar, "<think>x</think>", tokenizer)


@pytest.mark.parametrize("beginning", [Beginning.BEFORE, Beginning.INSIDE, Beginning.CONTINUED])
def test_reasoning_may_have_other_added_tokens(beginning: Beginning) -> None:
    tokenizer = scripted_tokenizer({}, (), ("<note>", "<other>"))
    ids = tokenizer.get_vocab()
    compiler = GrammarCompiler(tokenizer.to_str().encode(), tokenizer.get_vocab_size(), [0])
    reasoning = Reasoning(form=QWEN3, beginning=beginning, tag_ids=[ids["<note>"]], may_lack_answer=True)
    grammar = compiler.compile(with_reasoning(STRUCTURES[1], reasoning))
    begin = "<think>" if beginning is Beginning.BEFORE else ""
    assert allows(grammar, f"{begin}x<note>y</think>{ANSWER}", tokenizer)
    assert allows(grammar, f"{begin}<note>", tokenizer)
    assert not allows(grammar, f"{begin}x<other>y</think>{ANSWER}", tokenizer)
    assert not allows(grammar, f"{begin}x</think><note>{ANSWER}", tokenizer)


@pytest.mark.parametrize("structured", [STRUCTURES[1], STRUCTURES[0]], ids=lambda structured: structured.kind)
def test_a_structure_that_becomes_too_large_is_refused_with_the_limit(structured: StructuredOutput) -> None:
    """In the words of what the client sent: its own size was not above the limit."""
    source = "/" * MAX_STRUCTURE_BYTES
    if structured.kind is StructureKind.JSON_SCHEMA:
        source = json.dumps({"const": source[:-12]}, separators=(",", ":"))
    sent = StructuredOutput(kind=structured.kind, source=source)
    words = f"structured_output.{sent.kind}: takes .* with the reasoning before it; .* at most {MAX_STRUCTURE_BYTES}"
    with pytest.raises(InvalidFieldError, match=words):
        with_reasoning(sent, Reasoning(form=QWEN3))


def test_a_schema_takes_no_more_room_than_as_it_was_sent() -> None:
    source = json.dumps({"enum": list(range(12_000))}, separators=(",", ":"))
    structured = StructuredOutput(kind=StructureKind.JSON_SCHEMA, source=source)
    whole = with_reasoning(structured, Reasoning(form=QWEN3))
    assert len(whole.source) < len(source) + 400 < MAX_STRUCTURE_BYTES


def test_what_was_thought_counts_for_the_length_of_a_conversation() -> None:
    """A prompt that is too long is refused before the work of laying it out."""
    message = pb.ChatMessage(role="assistant", content="ab", reasoning_content="cde")
    assert character_count(pb.Chat(messages=[message, message])) == 10
