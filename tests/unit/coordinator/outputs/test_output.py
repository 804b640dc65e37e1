"""When an output ends, and with which tokens and text."""

import pytest

from coordinator.outputs.output import Output
from coordinator.requests.finish_reason import FinishReason
from coordinator.requests.request import GenerationRequest
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError
from specpair.options import SamplingOptions
from tests.unit.coordinator.requests.tokenizers import byte_level

EOS = 0


def output(tokenizer: Tokenizer | None = None, **changes: object) -> Output:
    values: dict[str, object] = {
        "prompt_ids": (1,),
        "sampling": SamplingOptions(stop_token_ids=(EOS,)),
        "max_tokens": 100,
        "num_speculative_tokens": 4,
    }
    return Output(GenerationRequest(**{**values, **changes}), tokenizer)  # type: ignore[arg-type]


def test_a_stop_token_is_the_last_token_and_has_no_text() -> None:
    ids = byte_level().encode("a b")
    result = output(byte_level())
    committed = result.commit([*ids, EOS, *ids])
    assert (committed.kept_count, committed.text) == (len(ids) + 1, "a b")
    assert result.token_ids == [*ids, EOS]
    assert result.finish_reason is FinishReason.STOP


def test_a_stop_token_with_a_text_leaves_it_out() -> None:
    (stop,) = byte_level().encode(" def")
    committed = output(byte_level(), sampling=SamplingOptions(stop_token_ids=(stop,))).commit(
        [*byte_level().encode("a"), stop]
    )
    assert committed.text == "a"


def test_a_stop_string_across_rounds_ends_with_the_token_that_completes_it() -> None:
    result = output(byte_level(), stop_strings=("€!",))
    ids = byte_level().encode("a€!?")
    texts = [result.commit([token_id]).text for token_id in ids]
    assert "".join(texts) == "a"
    assert result.token_ids == ids[: len(ids) - 1]
    assert result.finish_reason is FinishReason.STOP


def test_tokens_behind_a_stop_in_the_same_block_are_dropped() -> None:
    ids = byte_level().encode("a\n") + byte_level().encode("bbb")
    result = output(byte_level(), stop_strings=("\n",))
    committed = result.commit(ids)
    assert (committed.text, committed.kept_count) == ("a", len(byte_level().encode("a\n")))


def test_the_last_token_gives_out_what_was_held_back() -> None:
    ids = byte_level().encode("ab")
    result = output(byte_level(), stop_strings=("b then more",), max_tokens=len(ids))
    assert "".join(result.commit([token_id]).text for token_id in ids) == "ab"
    assert result.finish_reason is FinishReason.LENGTH


def test_a_stop_on_the_last_token_is_a_stop() -> None:
    result = output(byte_level(), max_tokens=1)
    result.commit([EOS])
    assert result.finish_reason is FinishReason.STOP


def test_without_a_tokenizer_there_are_tokens_alone() -> None:
    result = output(max_tokens=2)
    committed = result.commit([5, 6, 7])
    assert (committed.kept_count, committed.text, result.token_ids) == (2, "", [5, 6])
    assert result.finish_reason is FinishReason.LENGTH


def test_a_stop_string_counts_from_the_token_that_makes_the_output_long_enough() -> None:
    ids = byte_level().encode("a\nb\n")
    assert len(ids) == 4
    for min_tokens, kept_count in [(0, 2), (2, 2), (3, 4), (4, 4)]:
        result = output(byte_level(), stop_strings=("\n",), sampling=SamplingOptions(min_tokens=min_tokens))
        committed = result.commit([*ids, *ids])
        assert committed.kept_count == kept_count, min_tokens
        assert committed.text == ("a" if kept_count == 2 else "a\nb")
        assert result.finish_reason is FinishReason.STOP


def test_a_stop_token_counts_behind_min_tokens() -> None:
    result = output(sampling=SamplingOptions(min_tokens=3, stop_token_ids=(EOS,)))
    assert result.commit([5, EOS, EOS, EOS, 5]).kept_count == 4
    assert result.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("received_count", [1, 3, 40, 64, 65, 90])
def test_a_resumed_output_gives_the_rest_of_the_text_and_stops_where_it_would_have(received_count: int) -> None:
    ids = byte_level().encode("a€ def 😀! " * 12) + byte_level().encode("€!?")
    whole = output(byte_level(), stop_strings=("€!",), max_tokens=1000)
    texts = [whole.commit([token_id]).text for token_id in ids]
    resumed = output(
        byte_level(), stop_strings=("€!",), max_tokens=1000, resumed_ids=tuple(whole.token_ids[:received_count])
    )
    rest = resumed.commit(ids[received_count:])
    assert "".join(texts[:received_count]) + rest.text == "".join(texts)
    assert resumed.token_ids == whole.token_ids
    assert resumed.new_token_count == len(whole.token_ids) - received_count
    assert resumed.finish_reason is FinishReason.STOP


def test_nothing_is_resumed_behind_a_stop() -> None:
    with pytest.raises(InvalidFieldError, match="resumed_token_ids: continues after a stop"):
        output(resumed_ids=(9, EOS, 6, 7))


def test_a_long_stop_string_is_recognised_across_a_resumption() -> None:
    ids = byte_level().encode("x" + "é" * 200 + "y")
    stop = "é" * 200
    whole = output(byte_level(), stop_strings=(stop,), max_tokens=2000)
    whole.commit(ids)
    resumed = output(byte_level(), stop_strings=(stop,), max_tokens=2000, resumed_ids=tuple(ids[:190]))
    resumed.commit(ids[190:])
    assert whole.finish_reason is FinishReason.STOP
    assert (resumed.token_ids, resumed.finish_reason) == (whole.token_ids, FinishReason.STOP)
