"""What `generate` prints at the end: a JSON document, or a line."""

import json
from typing import Any

import pytest

from command.generation.results import Completion, json_document, summary_line
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.drafter_pb2 import DRAFTER_NGRAM
from specpair.v1.logprobs_pb2 import TokenLogprobs


def finished() -> pb.GenerationSummary:
    speculation = pb.SpeculationSummary(
        round_count=5,
        draft_round_count=4,
        draft_token_count=16,
        accepted_token_count=12,
        drafted_per_position=[4, 4, 4, 4],
        accepted_per_position=[4, 3, 3, 2],
        acceptance_rate=0.75,
        tokens_per_round=3.4,
        fallback_count=1,
        rule=sampling_pb2.ACCEPTANCE_RULE_TOKEN,
        lenience=1.0,
        drafter=DRAFTER_NGRAM,
    )
    return pb.GenerationSummary(
        finish_reason=pb.FINISH_REASON_STOP,
        prompt_token_count=7,
        cached_prompt_token_count=6,
        completion_token_count=18,
        seed=2**64 - 1,
        speculation=speculation,
        time_to_first_token_us=12_300,
        total_time_us=500_000,
    )


def completed(*responses: pb.GenerateTokensResponse, n: int = 1) -> Completion:
    completion = Completion(n)
    for response in responses:
        completion.add(response)
    assert completion.is_finished
    return completion


def test_the_json_document() -> None:
    rounds = [
        pb.GenerateTokensResponse(text="tä", tokens=[{"id": 1}]),  # type: ignore[list-item]
        pb.GenerateTokensResponse(text="xt", tokens=[{"id": 2}], summary=finished()),  # type: ignore[list-item]
    ]
    document = json.loads(json_document(completed(*rounds)))
    details = {"prompt_tokens_details": {"cached_tokens": 6}}
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 18, "total_tokens": 25, **details}
    (choice,) = document["choices"]
    assert (choice["index"], choice["text"], choice["token_ids"]) == (0, "täxt", [1, 2])
    assert choice["finish_reason"] == "stop" and choice["seed"] == 2**64 - 1
    assert choice["metrics"]["tokens_per_second"] == 36.0
    decoding = choice["metrics"]["speculative_decoding"]
    assert (decoding["num_drafts"], decoding["num_draft_tokens"], decoding["num_accepted_tokens"]) == (4, 16, 12)
    assert decoding["num_accepted_tokens_per_pos"] == [4, 3, 3, 2]
    assert (decoding["acceptance_rate"], decoding["tokens_per_round"]) == (0.75, 3.4)
    assert (decoding["num_fallbacks"], decoding["rule"]) == (1, "token")
    assert (decoding["lenience"], decoding["lossy"]) == (1.0, False)
    assert (decoding["drafter"], decoding["adaptive"]) == ("ngram", False)
    assert not {"prompt", "logprobs", "cumulative_logprob"} & {*document, *choice}


def test_the_json_document_of_several_outputs_with_logprobs() -> None:
    def token(token_id: int, logprob: float) -> pb.GeneratedToken:
        entry = TokenLogprobs(logprob=logprob, top_token_ids=[9], top_logprobs=[-0.5])
        return pb.GeneratedToken(id=token_id, text="t", logprobs=entry)

    summary = finished()
    summary.cumulative_logprob = -2.0
    prompt = [pb.GeneratedToken(id=5), token(6, -3.0)]
    completion = completed(
        pb.GenerateTokensResponse(choice_index=1, tokens=[token(2, -2.0)], prompt_tokens=prompt, summary=summary),
        pb.GenerateTokensResponse(choice_index=0, tokens=[token(1, -1.0)], summary=summary),
        n=2,
    )
    document = json.loads(json_document(completion))
    assert [choice["token_ids"] for choice in document["choices"]] == [[1], [2]]
    details = {"prompt_tokens_details": {"cached_tokens": 6}}
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 36, "total_tokens": 43, **details}
    top = [{"token_id": 9, "logprob": -0.5}]
    assert document["choices"][1]["logprobs"] == [
        {"token": "t", "token_id": 2, "logprob": -2.0, "top_logprobs": top},
    ]
    assert document["choices"][1]["cumulative_logprob"] == -2.0
    assert document["prompt"]["token_ids"] == [5, 6]
    assert document["prompt"]["logprobs"] == [
        None,
        {"token": "t", "token_id": 6, "logprob": -3.0, "top_logprobs": top},
    ]


def test_the_summary_line() -> None:
    line = summary_line(finished())
    parts = [
        "18 tokens in 0.50 s",
        "36.0 tokens/s",
        "12.3 ms",
        "6 of 7 prompt tokens cached",
        "75.0% (12 of 16)",
        "3.40 tokens",
        "drafter ngram",
        "1 of 5 rounds",
    ]
    assert [part for part in parts if part not in line] == []
    assert "LOSSY" not in line and "logprob" not in line


def test_a_lossy_output_is_called_so_before_all_else() -> None:
    summary = finished()
    summary.speculation.lenience, summary.speculation.lossy = 0.3, True
    summary.cumulative_logprob = -9.0
    line = summary_line(summary)
    assert line.startswith("LOSSY: lenience 0.3 · 18 tokens")
    assert "mean logprob -0.500" in line


def test_an_output_that_was_resumed_says_so() -> None:
    summary = finished()
    summary.resumed_token_count = 7
    assert summary_line(summary).startswith("coordinator lost, resumed after 7 tokens: since then · 18 tokens in")


def test_the_summary_says_when_adaptive_k_proposed_nothing() -> None:
    summary = finished()
    assert "acceptance rate 75.0% (12 of 16)" in summary_line(summary)
    summary.speculation.draft_token_count = 0
    assert "acceptance" not in summary_line(summary) and "no tokens proposed" not in summary_line(summary)
    summary.speculation.adaptive = True
    assert "no tokens proposed" in summary_line(summary)


@pytest.mark.parametrize(
    ("tokens", "reason", "is_said"),
    [(2, pb.FINISH_REASON_LENGTH, False), (2, pb.FINISH_REASON_STOP, True), (3, pb.FINISH_REASON_LENGTH, True)],
)
def test_nothing_is_said_of_adaptive_k_where_no_proposal_had_room(tokens: int, reason: Any, is_said: bool) -> None:
    summary = finished()
    summary.completion_token_count, summary.finish_reason = tokens, reason
    summary.speculation.draft_token_count, summary.speculation.adaptive = 0, True
    assert ("adaptive K" in summary_line(summary)) is is_said


@pytest.mark.parametrize("fallback_count", [0, 5], ids=["no round", "no round with a draft"])
def test_the_summary_says_nothing_of_adaptive_k_where_it_had_nothing_to_decide(fallback_count: int) -> None:
    """Such as the prompt alone, an output that its grammar forces, the second output of a beam search."""
    summary = finished()
    summary.speculation.draft_token_count, summary.speculation.adaptive = 0, True
    summary.speculation.round_count = summary.speculation.fallback_count = fallback_count
    assert "no tokens proposed" not in summary_line(summary)
