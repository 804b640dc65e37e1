"""The items of a response do not depend on the pieces in which its text comes, and its events tell all of them."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coordinator.http.answer_parts import AnswerParts
from coordinator.http.output_items import OutputItems
from coordinator.http.response_items import COMPLETED, INCOMPLETE, Event
from coordinator.http.response_logprobs import ResponseLogprobs
from coordinator.reasoning_form import ReasoningForm
from coordinator.requests.reasoning import Reasoning
from coordinator.tool_call_form import TOOL_CALL_FORMS, ToolCallParser
from specpair.v1 import coordinator_service_pb2 as pb

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "}"}}\n</tool_call>'
HERMES = TOOL_CALL_FORMS[ToolCallParser.HERMES]
texts = st.lists(st.sampled_from([CALL, "\n", " ", "a", "b c", "<", "<tool", "{", "\u3000", "\u00a0"]), max_size=8).map(
    "".join
)
cuts = st.lists(st.integers(0, 300), max_size=10) | st.just(list(range(600)))


def output_items(logprobs: ResponseLogprobs | None = None) -> OutputItems:
    return OutputItems(AnswerParts(calling=HERMES, reasoning=Reasoning(form=ReasoningForm())), logprobs)


def without_ids(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in documents]


def kinds(documents: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The type and text of each item."""
    return [
        (item["type"], item["arguments"] if "arguments" in item else "".join(part["text"] for part in item["content"]))
        for item in documents
    ]


def read_events(events: list[Event]) -> list[dict[str, Any]]:
    """The items as a client puts them together, which must be those that it is told in the end."""
    items, texts = dict[int, dict[str, Any]](), dict[int, str]()
    for event in events:
        index, kind = event["output_index"], event["type"]
        if kind == "response.output_item.added":
            assert index == len(items) and all(item["status"] == COMPLETED for item in items.values())
            items[index], texts[index] = event["item"], ""
        elif kind.endswith(".delta"):
            texts[index] += event["delta"]
        elif kind.endswith("_text.done") or kind.endswith("arguments.done"):
            assert event.get("text", event.get("arguments")) == texts[index]
        elif kind == "response.output_item.done":
            assert (event["item"]["type"], event["item"]["id"]) == (items[index]["type"], items[index]["id"])
            items[index] = event["item"]
        assert event.get("item_id", items[index]["id"]) == items[index]["id"]
    assert kinds(list(items.values())) == [(item["type"], texts[index]) for index, item in items.items()]
    return list(items.values())


@given(thought=st.sampled_from(["", "<think>hm </think>\n", "<think>hm"]), text=texts, places=cuts)
def test_pieces_make_the_items_of_the_whole(thought: str, text: str, places: list[int]) -> None:
    text = thought + text
    whole, parted = output_items(), output_items()
    whole.push(text, is_last=True)
    whole.end(COMPLETED)
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    events = [event for a, b in pairwise(ends) for event in parted.push(text[a:b])]
    events += parted.push("", is_last=True) + parted.end(COMPLETED)
    assert without_ids(parted.documents()) == without_ids(whole.documents())
    assert read_events(events) == parted.documents()


def test_items_come_in_the_order_of_the_text() -> None:
    items = output_items()
    items.push(f"<think>a</think>b\n{CALL}\n{CALL}\n\u3000c d\n{CALL}", is_last=True)
    items.end(COMPLETED)
    call = ("function_call", '{"a": "}"}')
    assert kinds(items.documents()) == [
        ("reasoning", "a"),
        ("message", "b"),
        call,
        call,
        ("message", "\u3000c d"),
        call,
    ]


def test_an_output_that_is_cut_off_has_an_incomplete_item() -> None:
    for text, expected in (
        ("<think>a", [("reasoning", INCOMPLETE)]),
        ("<think>a</think>b", [("reasoning", COMPLETED), ("message", INCOMPLETE)]),
        (f"b{CALL[:50]}", [("message", COMPLETED), ("function_call", INCOMPLETE)]),
        ("", []),
    ):
        items = output_items()
        items.push(text, is_last=True)
        items.end(INCOMPLETE)
        assert [(item["type"], item["status"]) for item in items.documents()] == expected


def test_an_output_that_is_cut_off_before_the_call_that_it_must_make_has_no_item() -> None:
    for end in range(CALL.index("f")):
        items = OutputItems(AnswerParts(calling=HERMES, must_call=True), None)
        assert items.push(CALL[:end], is_last=True) + items.end(INCOMPLETE) == [], end


def test_an_output_that_says_nothing_is_a_message_without_text() -> None:
    items = output_items()
    events = items.push("", is_last=True) + items.end(COMPLETED)
    assert kinds(read_events(events)) == [("message", "")]


def test_where_tokens_stand_does_not_depend_on_the_pieces_of_a_call() -> None:
    """Which follow the rounds, and so what was accepted."""
    for pieces in ([CALL], [CALL[:20], CALL[20:]], [CALL[:9], CALL[9:40], CALL[40:]]):
        items = output_items(ResponseLogprobs(str, lambda token_id: None))
        for piece in ["a", *pieces, "b"]:
            items.push(piece, [pb.GeneratedToken(id=1, text=piece)])
        items.push("", [pb.GeneratedToken(id=1, text="e")], is_last=True)
        items.end(COMPLETED)
        told = [part["logprobs"] for item in items.documents() if "content" in item for part in item["content"]]
        assert [[token["token"] for token in tokens] for tokens in told] == [["a"], [*pieces, "b", "e"]]


def test_an_item_that_was_told_to_be_whole_stays_so() -> None:
    items = output_items()
    items.push("a", is_last=True)
    items.end(COMPLETED)
    items.break_off(INCOMPLETE)
    assert items.documents()[0]["status"] == COMPLETED


def test_tokens_stand_with_the_next_text() -> None:
    items = output_items(ResponseLogprobs(str, lambda token_id: None))
    events: list[Event] = []
    for number, piece in enumerate(["<think>a", "</think>", "b", "<", "c", CALL]):
        events += items.push(piece, [pb.GeneratedToken(id=number, text="" if number == 3 else f"t{number}")])
    events += items.push("", [pb.GeneratedToken(id=6, text="t6")], is_last=True) + items.end(COMPLETED)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [(event["delta"], [token["token"] for token in event["logprobs"]]) for event in deltas] == [
        ("b", ["t0", "t1", "t2"]),
        ("<c", ["token_id:3", "t4"]),
    ]
    (part,) = items.documents()[1]["content"]
    assert [token["token"] for token in part["logprobs"]] == ["t0", "t1", "t2", "token_id:3", "t4"]
    assert [token["bytes"] for token in part["logprobs"][2:4]] == [[*b"t2"], []]
