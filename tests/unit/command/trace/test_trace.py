"""Rounds as a Chrome trace: every track named, every span on its track, none across the end of another."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from command.failures import CommandError
from command.trace.chrome_trace import Sample, Span, Track, chrome_trace
from command.trace.spans import trace_document
from command.trace.trace import write_trace
from specpair.v1 import coordinator_service_pb2 as pb

NAMES = ("process_name", "thread_name", "process_sort_index", "thread_sort_index")


def check_trace(document: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """That a viewer can show it: its spans by process and thread."""
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    spans: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in json.loads(json.dumps(document))["traceEvents"]:
        if event["ph"] == "M":
            assert event["name"] in NAMES
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            if event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            spans[processes[event["pid"]], threads[event["pid"], event["tid"]]].append(event)
        else:
            assert (
                event["ph"] == "C"
                and event["pid"] in processes
                and all(0 <= value <= 1 for value in event["args"].values())
            )
    for track in spans.values():
        check_nested(track)
    return spans


def check_nested(track: list[dict[str, Any]]) -> None:
    """In the order of the file, each span lies within the ones that are open when it begins."""
    open_ends: list[int] = []
    start = 0
    for event in track:
        assert event["ts"] >= start
        start = event["ts"]
        while open_ends and open_ends[-1] <= event["ts"]:
            open_ends.pop()
        assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1], event
        open_ends.append(event["ts"] + event["dur"])


def times(start: int, elapsed: int, queue: int, compute: int) -> pb.CallTimes:
    return pb.CallTimes(start_us=start, elapsed_us=elapsed, queue_us=queue, compute_us=compute)


def a_request(choice_index: int = 0) -> list[pb.GenerateTokensResponse]:
    """The first token, a round of three proposals of which two are accepted, and a plain round."""
    first = pb.GenerateTokensResponse(text="a", round=pb.RoundReport(verify=times(50, 40, 10, 20), batch_token_count=7))
    first.tokens.add(id=1, text="a", origin=pb.TOKEN_ORIGIN_TARGET)
    report = pb.RoundReport(step=1, draft=times(100, 31, 5, 15), verify=times(130, 60, 0, 50), batch_token_count=4)
    for i in range(3):
        report.proposed.add(id=i, text=str(i), accepted=i < 2, target_probability=0.5, draft_probability=0.25)
    middle = pb.GenerateTokensResponse(text="01x", round=report)
    plain = pb.RoundReport(step=2, verify=times(200, 30, 0, 40), batch_token_count=1)
    summary = pb.GenerationSummary(total_time_us=240, seed=2**64 - 1, completion_token_count=5)
    last = pb.GenerateTokensResponse(text="y", round=plain, summary=summary)
    responses = [first, middle, last]
    for response in responses:
        response.choice_index = choice_index
    return responses


def spans_of(track: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(event["name"], event["ts"], event["dur"]) for event in track]


def test_a_call_is_its_way_its_queue_and_its_work() -> None:
    spans = check_trace(trace_document(a_request()))
    assert spans_of(spans["coordinator", "rounds"]) == [
        ("request", 0, 240),
        ("read prompt, open sequences", 0, 50),
        ("first token", 50, 40),
        ("round 1", 100, 91),
        ("round 2", 200, 30),
    ]
    assert spans_of(spans["draft", "queue"]) == [("queue", 105, 5)]
    assert spans_of(spans["draft", "compute"]) == [("propose", 110, 15)]
    assert spans_of(spans["network", "draft"]) == [("to draft", 100, 5), ("from draft", 125, 6)]
    # The verification began in the microsecond in which the proposal ended, by rounding a little earlier.
    assert spans_of(spans["target", "compute"]) == [
        ("verify", 65, 20),
        ("verify", 136, 50),
        ("verify", 200, 30),
    ]


def test_work_that_was_done_ahead_has_a_track_of_its_own() -> None:
    responses = a_request()
    ahead = pb.RoundReport(
        step=2, draft=times(140, 30, 0, 30), verify=times(200, 30, 0, 40), ahead=pb.AHEAD_OUTCOME_HIT
    )
    ahead.proposed.add(id=7)
    responses[-1].round.CopyFrom(ahead)
    spans = check_trace(trace_document(responses))
    assert spans_of(spans["draft", "ahead"]) == [("propose", 140, 30)], "beside the verification of the round before"
    assert spans["draft", "ahead"][0]["args"] == {"round": 2, "proposed": 1, "ahead": "hit"}
    assert spans_of(spans["draft", "compute"]) == [("propose", 110, 15)]
    assert spans_of(spans["coordinator", "rounds"])[-1] == ("round 2", 200, 30)


def test_work_ahead_for_two_rounds_at_once_is_on_two_tracks() -> None:
    responses = a_request()
    plain = responses[-1]
    rounds = ((2, 140, 130), (3, 240, 100), (4, 275, 30))
    for step, start, elapsed in rounds:
        report = pb.RoundReport(
            step=step,
            draft=times(start, elapsed, 0, elapsed),
            verify=times(100 * step, 30, 0, 30),
            ahead=pb.AHEAD_OUTCOME_HIT,
        )
        report.proposed.add(id=7)
        responses.insert(-1, pb.GenerateTokensResponse(text="z", round=report))
    plain.round.step, plain.round.verify.start_us, plain.summary.total_time_us = 5, 500, 600
    spans = check_trace(trace_document(responses))
    assert spans_of(spans["draft", "ahead"]) == [("propose", 140, 130), ("propose", 275, 30)]
    assert spans_of(spans["draft", "ahead 2"]) == [("propose", 240, 100)]


def test_a_round_says_what_was_proposed_and_accepted() -> None:
    spans = check_trace(trace_document(a_request()))
    request, _, _, middle, plain = (event["args"] for event in spans["coordinator", "rounds"])
    assert request["seed"] == str(2**64 - 1)
    assert (middle["proposed"], middle["accepted"]) == (3, 2) and (plain["proposed"], plain["accepted"]) == (0, 0)
    assert middle["proposal"][2] == {
        "text": "2",
        "accepted": False,
        "target_probability": 0.5,
        "draft_probability": 0.25,
    }
    (propose,) = spans["draft", "compute"]
    assert propose["args"] == {"round": 1, "proposed": 3}
    assert spans["target", "compute"][1]["args"] == {"round": 1, "proposed": 3, "accepted": 2, "batch_token_count": 4}


def test_a_tree_says_what_each_token_follows_and_who_proposed_it() -> None:
    responses = a_request()
    for token, parent, names in zip(responses[1].round.proposed, (-1, 0, 0), (["a", "b"], ["a"], ["b"]), strict=True):
        token.parent_index = parent
        token.draft_names.extend(names)
    spans = check_trace(trace_document(responses))
    proposal = spans["coordinator", "rounds"][3]["args"]["proposal"]
    assert [(token["parent"], token["drafts"]) for token in proposal] == [(-1, ["a", "b"]), (0, ["a"]), (0, ["b"])]


def test_the_acceptance_rate_is_a_curve() -> None:
    events = trace_document(a_request())["traceEvents"]
    (sample,) = [event for event in events if event["ph"] == "C"]
    assert sample["args"] == {"acceptance rate": pytest.approx(2 / 3)} and sample["ts"] == 191


def test_outputs_have_tracks_of_their_own() -> None:
    responses = [response for pair in zip(a_request(0), a_request(1), strict=True) for response in pair]
    document = trace_document(responses)
    spans = check_trace(document)
    assert {thread for process, thread in spans if process == "coordinator"} == {
        "rounds (output 1)",
        "rounds (output 2)",
    }
    assert document["otherData"] == {"text": "a01xy"}


def test_a_span_needs_a_track() -> None:
    with pytest.raises(KeyError):
        chrome_trace([], [Span(track=Track("a", "b"), name="c", start_us=0, duration_us=1)])
    with pytest.raises(KeyError):
        chrome_trace([], [], [Sample(process="a", name="b", at_us=0, value=1.0)])


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing/trace\.json cannot be written: No such file"):
        write_trace(tmp_path / "missing" / "trace.json", a_request())
