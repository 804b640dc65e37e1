import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from specpair import errors
from specpair.errors import SpecpairError
from specpair.rpc.status import (
    DOMAIN,
    MOST_RETRY_SECONDS,
    STATUS_CODES,
    STATUS_DETAILS_KEY,
    error_from_rpc,
    error_from_stream,
    peer_errors,
    rich_status,
    status_code,
    stream_error,
)
from specpair.v1 import error_reason_pb2, stream_error_pb2

CONTRACT = Path(__file__).parents[4] / "proto" / "specpair" / "v1" / "error_reason.proto"

SAMPLES: list[SpecpairError] = [
    SpecpairError("internal error"),
    errors.InvalidFieldError("top_p", "is 2; it must be at most 1", limit=1),
    errors.PromptTooLongError(600, 512),
    errors.InvalidDistributionError("proposal.distributions.sparse.counts", "row 1 sums to 7"),
    errors.SequenceNotFoundError("abc"),
    errors.BaseLengthMismatchError(12, 9),
    errors.StaleStepError("step 3 was taken before", last_step=4),
    errors.ConflictingBodyError("step 3 had another body"),
    errors.LengthNotReachedError(30, 20),
    errors.CapacityExhaustedError("no free blocks"),
    errors.ForwardFailedError(),
    errors.NotFiniteError(),
    errors.NotSupportedError("trees are not served"),
    errors.PeerUnavailableError("the draft did not answer"),
    errors.StartingError(),
    errors.ClientStalledError(60),
    errors.InvalidGrammarError("is malformed"),
    errors.ShuttingDownError(),
    errors.UnauthenticatedError(),
    errors.VocabularyMismatchError("token 5 differs", token_id=5, draft="a", target="b"),
]


def subclasses(cls: type[SpecpairError]) -> set[type[SpecpairError]]:
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


def rpc_error(
    code: grpc.StatusCode, message: str = "", details: bytes | None = None, key: str = STATUS_DETAILS_KEY
) -> grpc.aio.AioRpcError:
    pairs = [] if details is None else [(key, details)]
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*pairs), details=message)


def over_unary(error: SpecpairError) -> SpecpairError:
    status = rich_status(error)
    return error_from_rpc(rpc_error(status_code(error), status.message, status.SerializeToString()))


def over_stream(error: SpecpairError) -> SpecpairError:
    data = stream_error(error).SerializeToString()
    return error_from_stream(stream_error_pb2.StreamError.FromString(data))


def test_table_names_every_error_class() -> None:
    own = {cls for cls in subclasses(SpecpairError) if cls.__module__ == errors.__name__}
    assert own == set(STATUS_CODES)


def test_samples_cover_every_class_but_those_raised_at_load_alone() -> None:
    assert {type(sample) for sample in SAMPLES} == set(STATUS_CODES) - {errors.ModelRefusedError}


def test_reasons_of_classes_and_of_the_contract_are_the_same() -> None:
    contract = {name.removeprefix("ERROR_REASON_") for name, _ in error_reason_pb2.ErrorReason.items()}
    assert {cls.reason for cls in STATUS_CODES} == contract - {"UNSPECIFIED"}


def test_status_of_each_reason_is_the_one_that_the_contract_names() -> None:
    pattern = re.compile(r"// ([A-Z_]+): .*(?:\n\s*//.*)*\n\s*ERROR_REASON_([A-Z_]+) =")
    contract = {reason: code for code, reason in pattern.findall(CONTRACT.read_text())}
    assert {cls.reason: code.name for cls, code in STATUS_CODES.items()} == contract


@pytest.mark.parametrize("travel", [over_unary, over_stream])
@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_error_arrives_as_it_was_raised(error: SpecpairError, travel) -> None:
    arrived = travel(error)
    assert type(arrived) is type(error)
    assert (arrived.message, str(arrived), arrived.metadata) == (error.message, str(error), error.metadata)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_stream_and_unary_give_the_same_code(error: SpecpairError) -> None:
    assert stream_error(error).code == rich_status(error).code == status_code(error).value[0] != 0


def test_error_of_an_unknown_subclass_counts_as_its_base() -> None:
    class OwnError(errors.StaleStepError):
        pass

    assert status_code(OwnError("late")) is grpc.StatusCode.ABORTED


def test_retry_info_comes_with_exhausted_capacity_alone() -> None:
    def retry_delays(error: SpecpairError) -> list[float]:
        retry = error_details_pb2.RetryInfo()
        return [
            retry.retry_delay.ToMilliseconds() / 1000 for detail in rich_status(error).details if detail.Unpack(retry)
        ]

    assert {type(error): retry_delays(error) for error in SAMPLES if retry_delays(error)} == {
        errors.CapacityExhaustedError: [1.0]
    }
    assert retry_delays(errors.CapacityExhaustedError("full", retry_after=2.5)) == [2.5]


@pytest.mark.parametrize(("told", "heard"), [(2.5, 2.5), (0.0, 0.0), (1e9, MOST_RETRY_SECONDS)])
def test_the_time_after_which_to_try_again_arrives(told: float, heard: float) -> None:
    arrived = over_unary(errors.CapacityExhaustedError("full", retry_after=told))
    assert isinstance(arrived, errors.CapacityExhaustedError) and arrived.retry_after == heard


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.PeerUnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.PeerUnavailableError),
        (grpc.StatusCode.CANCELLED, errors.PeerUnavailableError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotSupportedError),
        (grpc.StatusCode.UNKNOWN, errors.PeerUnavailableError),
        (grpc.StatusCode.INTERNAL, errors.PeerUnavailableError),
        (grpc.StatusCode.ABORTED, errors.PeerUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.CapacityExhaustedError),
        (grpc.StatusCode.PERMISSION_DENIED, SpecpairError),
    ],
)
def test_status_of_grpc_itself(code: grpc.StatusCode, expected: type[SpecpairError]) -> None:
    error = error_from_rpc(rpc_error(code, "said by gRPC"))
    assert type(error) is expected
    assert code.name in error.message
    assert "said by gRPC" in error.message


def foreign_details(reason: str, domain: str) -> bytes:
    status = status_pb2.Status()
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain))
    return status.SerializeToString()


@pytest.mark.parametrize(
    "details",
    [b"\xff\xff\xff", foreign_details("STALE_STEP", "elsewhere"), foreign_details("FROM_THE_FUTURE", DOMAIN)],
    ids=["garbage", "foreign domain", "unknown reason"],
)
def test_details_that_mean_nothing_here_leave_the_status(details: bytes) -> None:
    assert type(error_from_rpc(rpc_error(grpc.StatusCode.UNAVAILABLE, "", details))) is errors.PeerUnavailableError


def test_reason_from_a_later_version_is_a_plain_error_on_a_stream() -> None:
    message = stream_error_pb2.StreamError(code=9, message="new", metadata={"field": "x"})
    message.MergeFromString(b"\x18\x63")  # field 3, reason: 99
    error = error_from_stream(message)
    assert (type(error), error.message, error.metadata) == (SpecpairError, "new", {"field": "x"})


def test_peer_errors_translates_and_keeps_the_cause() -> None:
    cause = rpc_error(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(errors.PeerUnavailableError) as caught, peer_errors():
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("tell", [over_unary, over_stream])
def test_words_of_the_transport_are_told_to_nobody(tell: Callable[[SpecpairError], SpecpairError]) -> None:
    """A coordinator that passes on what it heard on the way to a peer would name hosts of a private network."""
    words = "failed to connect to all addresses; last error: ipv4:10.1.2.3:50052: Connection refused"
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN):
        heard = error_from_rpc(rpc_error(code, words))
        assert "10.1.2.3" in heard.message
        told = tell(heard)
        assert type(told) is type(heard)
        assert told.message == "a service behind this one could not be reached" and told.metadata == {}


@pytest.mark.parametrize("tell", [rich_status, stream_error])
def test_a_text_that_quotes_its_client_at_length_is_cut(tell: Callable[[SpecpairError], Any]) -> None:
    error = errors.CapacityExhaustedError("x" * 100_000)
    error.retry_after = 7.0
    told = tell(error)
    assert len(told.message) == 500 and told.message.endswith("x...")
    assert len(told.SerializeToString()) < 2000
    assert tell(errors.InvalidFieldError("n", "y" * 400)).message.endswith("y")
    if tell is rich_status:
        retry = error_details_pb2.RetryInfo()
        assert told.details[1].Unpack(retry) and retry.retry_delay.seconds == 7
