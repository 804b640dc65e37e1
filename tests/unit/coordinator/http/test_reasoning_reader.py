"""What is read of reasoning depends on the text alone, not on the pieces in which it comes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.http.output_reader import OutputReader
from coordinator.http.reasoning_reader import ReasoningReader
from coordinator.http.tool_calls import ToolCallReader
from coordinator.reasoning_form import ReasoningForm
from coordinator.requests.reasoning import Beginning
from coordinator.tool_call_form import TOOL_CALL_FORMS, ToolCallParser

FORM = ReasoningForm()
PARTS = ["<think>", "</think>", "<thi", "nk>", "</", "<", "think", ">", " ", "\n", "a", "b c", "<tool_call>"]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'

texts = st.lists(st.sampled_from(PARTS)).map("".join)
cuts = st.lists(st.integers(0, 60), max_size=8)


def reader(beginning: Beginning) -> ReasoningReader:
    return ReasoningReader(FORM, beginning)


def pieces(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[a:b] for a, b in pairwise(ends)]


@given(text=texts, places=cuts, beginning=st.sampled_from(Beginning))
def test_pieces_add_up_to_the_whole(text: str, places: list[int], beginning: Beginning) -> None:
    whole = reader(beginning).push(text, is_last=True)
    parted = reader(beginning)
    told = [parted.push(piece) for piece in pieces(text, places)]
    told.append(parted.push("", is_last=True))
    assert "".join(part.reasoning for part in told) == whole.reasoning
    assert "".join(part.answer for part in told) == whole.answer


@given(text=texts, beginning=st.sampled_from(Beginning))
def test_nothing_is_lost_but_tags_and_space_beside_them(text: str, beginning: Beginning) -> None:
    told = reader(beginning).push(text, is_last=True)
    kept = (told.reasoning + told.answer).replace(" ", "").replace("\n", "")
    bare = text.replace(" ", "").replace("\n", "")
    ways = [bare, bare.replace("</think>", "", 1)]
    assert kept in [*ways, *(way.removeprefix("<think>") for way in ways)]


@pytest.mark.parametrize(
    ("beginning", "text", "reasoning", "answer"),
    [
        (Beginning.BEFORE, "\n<think>\na \n</think>\n\nb ", "a", "b "),
        (Beginning.BEFORE, " a</think>", "", " a</think>"),
        (Beginning.BEFORE, " <thin", "", " <thin"),
        (Beginning.BEFORE, "<think>\n\n</think>\n\n", "", ""),
        (Beginning.INSIDE, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        (Beginning.INSIDE, " a</thin", "a</thin", ""),
        (Beginning.INSIDE, "</think>b", "", "b"),
        (Beginning.CONTINUED, " a </think> b", " a", "b"),
        (Beginning.CONTINUED, "<think></think>b", "<think>", "b"),
        (Beginning.AFTER, " a<think>b</think>", "", " a<think>b</think>"),
    ],
)
def test_where_the_text_begins_decides(beginning: Beginning, text: str, reasoning: str, answer: str) -> None:
    assert reader(beginning).push(text, is_last=True) == (reasoning, answer)


def test_what_is_certain_is_told_at_once() -> None:
    parted = reader(Beginning.INSIDE)
    told = [parted.push(piece) for piece in ("a", " ", "b <", "/t", "able", "</think", ">", " c")]
    assert [part.reasoning for part in told] == ["a", "", " b", "", " </table", "", "", ""]
    assert [part.answer for part in told] == [*[""] * 7, "c"]


@pytest.mark.parametrize(("space", "calls"), [(16, 1), (17, 0), (33, 0)])
def test_a_whole_answer_is_a_call_after_as_much_space_as_the_grammar_has(space: int, calls: int) -> None:
    """More is text to the grammar, which then checked nothing."""
    text = "\n" * space + '{"name": "Bob", "age": 3}'
    for pieces in ([f"x</think>{text}"], ["x</think>", *text]):
        output = OutputReader(reader(Beginning.INSIDE), ToolCallReader(TOOL_CALL_FORMS[ToolCallParser.LLAMA3_JSON]))
        said = [*(output.push(piece) for piece in pieces), output.push("", is_last=True)]
        assert "".join(part.text for part in said) == ("" if calls else text)


def test_calls_are_looked_for_after_the_reasoning_alone() -> None:
    output = OutputReader(reader(Beginning.INSIDE), ToolCallReader(TOOL_CALL_FORMS[ToolCallParser.HERMES]))
    said = output.push(f"{CALL}</think>b\n{CALL}", is_last=True)
    assert (said.reasoning, said.text, len(said.calls), output.has_whole_call) == (CALL, "b", 1, True)
    plain = OutputReader(None, None)
    assert plain.push(CALL).text == CALL and not plain.has_whole_call
