"""What is refused before a message is made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.errors import InvalidFieldError
from specpair.rpc.decoding import SMALL_BYTES, has_more_fields, lenient, lenient_calls, readable, strict_answers
from specpair.rpc.sizes import MAX_PLAIN_BYTES, MAX_TOGETHER_CALLS
from specpair.v1.draft_service_pb2 import StreamProposalsRequest, StreamProposalsResponse
from specpair.v1.sequence_service_pb2 import OpenSequenceRequest

EMPTY_CALL = b"\x0a\x00"
PLAIN = "/specpair.v1.SequenceService/OpenSequence"
HOT = "/specpair.v1.DraftService/StreamProposals"
WIDE = "/specpair.v1.TargetService/StreamVerifications"


def calls(count: int, token_count: int = 10) -> bytes:
    message = StreamProposalsRequest()
    for call_id in range(count):
        message.calls.add(call_id=call_id).request.appended_token_ids.extend(range(1000, 1000 + token_count))
    return message.SerializeToString()


def test_millions_of_empty_calls_are_refused_unread() -> None:
    def explode(data: bytes) -> None:
        raise AssertionError("read after all")

    for flood in (EMPTY_CALL * 1_000_000, b"\xf8\x3f\x00" * 1_000_000, b"\x0b\x0c" * 1_000_000):
        with pytest.raises(InvalidFieldError, match="at most 1024") as caught:
            readable(lenient_calls(explode, HOT)(flood))  # pyright: ignore[reportOptionalCall]
        assert caught.value.metadata["limit"] == "1024"
        with pytest.raises(ValueError, match="1024"):
            strict_answers(StreamProposalsResponse.FromString)(flood)


@pytest.mark.parametrize("count", [1, MAX_TOGETHER_CALLS])
def test_as_many_calls_as_travel_together_are_read(count: int) -> None:
    data = calls(count, 40)
    read = lenient_calls(StreamProposalsRequest.FromString, HOT)
    assert read is not None and len(readable(read(data)).calls) == count
    assert (count == 1) == (len(data) < SMALL_BYTES)
    assert has_more_fields(calls(MAX_TOGETHER_CALLS + 1, 40), MAX_TOGETHER_CALLS)


@given(st.binary(max_size=64))
def test_bytes_that_are_no_message_are_the_reader_s_affair(data: bytes) -> None:
    filled = data + bytes(SMALL_BYTES)
    assert has_more_fields(filled, MAX_TOGETHER_CALLS) in (True, False)
    assert not has_more_fields(data, 0)


def test_a_request_without_distributions_has_the_limit_of_a_body_over_http() -> None:
    request = OpenSequenceRequest(sequence_id="x" * MAX_PLAIN_BYTES).SerializeToString()
    read = lenient(OpenSequenceRequest.FromString, PLAIN)
    assert read is not None
    with pytest.raises(InvalidFieldError, match="request: has 41943") as caught:
        readable(read(request))
    assert caught.value.metadata["limit"] == str(MAX_PLAIN_BYTES)
    wide = lenient(OpenSequenceRequest.FromString, WIDE)
    assert wide is not None and readable(wide(request)).sequence_id
