"""All errors of specpair, as the caller sees them.

    SpecpairError
    +-- InvalidFieldError            a field has a value outside its limits
    |   +-- PromptTooLongError       the prompt does not fit the model
    |   +-- InvalidDistributionError a distribution is malformed or gives a drafted token no probability
    |   +-- InvalidGrammarError      a structured output cannot be used, or can no longer be continued
    +-- SequenceNotFoundError        no such sequence here
    +-- BaseLengthMismatchError      the caller assumes more tokens than the service holds
    +-- StaleStepError               a later step was already taken, or a call is under way
    +-- ConflictingBodyError         an id or a step was used before with another body
    +-- LengthNotReachedError        a rollback to a length that was never reached
    +-- CapacityExhaustedError       no capacity at present
    +-- ForwardFailedError           a forward pass failed; the call may be retried
    +-- NotFiniteError               the model gave NaN or infinite logits
    +-- NotSupportedError            the contract allows it, but this version does not support it
    +-- ModelRefusedError            the model cannot be served correctly; raised only while loading
    +-- PeerUnavailableError         a required service could not be reached in time
    |   +-- StartingError            the process does not serve yet
    +-- ShuttingDownError            the process is stopping
    +-- ClientStalledError           the client does not read what it is sent
    +-- UnauthenticatedError         no token, or an unknown one
    +-- VocabularyMismatchError      draft and target do not share a vocabulary

Messages may reach anybody: they name fields, limits and lengths, never paths or internals.
`specpair.rpc.status` maps each error to a gRPC status.
"""

from typing import ClassVar


class SpecpairError(Exception):
    """Base of all errors that specpair raises on purpose.

    `reason` is the name of a `specpair.v1.ErrorReason` without its prefix; `metadata` holds details for programs,
    as strings.
    """

    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, **metadata: object):
        super().__init__(message)
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}


class InvalidFieldError(SpecpairError):
    reason = "INVALID_FIELD"

    def __init__(self, field: str, problem: str, **metadata: object):
        super().__init__(f"{field}: {problem}", field=field, **metadata)


class PromptTooLongError(InvalidFieldError):
    """`unit` is what `length` and `limit` count: tokens, or the characters of a text that is too long whatever its
    tokens are."""

    reason = "PROMPT_TOO_LONG"

    def __init__(
        self,
        length: int,
        limit: int,
        *,
        field: str = "prompt",
        unit: str = "tokens",
        use: str = "leave room for output",
    ):
        problem = f"has {length} {unit}; at most {limit} {use}"
        super().__init__(field, problem, length=length, limit=limit, unit=unit)


class InvalidDistributionError(InvalidFieldError):
    reason = "INVALID_DISTRIBUTION"


class InvalidGrammarError(InvalidFieldError):
    reason = "INVALID_GRAMMAR"

    def __init__(self, problem: str):
        super().__init__("structured_output", problem)


class SequenceNotFoundError(SpecpairError):
    reason = "SEQUENCE_NOT_FOUND"

    def __init__(self, sequence_id: str):
        super().__init__(f"sequence {sequence_id!r} is not open here", sequence_id=sequence_id)


class BaseLengthMismatchError(SpecpairError):
    reason = "BASE_LENGTH_MISMATCH"

    def __init__(self, base_length: int, held_length: int):
        super().__init__(f"base_length is {base_length}, but {held_length} tokens are held", held_length=held_length)

    @property
    def held_length(self) -> int:
        """The tokens that the service says it holds; 0 if it says no number."""
        try:
            return int(self.metadata.get("held_length", ""))
        except ValueError:  # a peer may say anything
            return 0


class StaleStepError(SpecpairError):
    reason = "STALE_STEP"


class ConflictingBodyError(SpecpairError):
    reason = "CONFLICTING_BODY"


class LengthNotReachedError(SpecpairError):
    reason = "LENGTH_NOT_REACHED"

    def __init__(self, length: int, held_length: int):
        super().__init__(
            f"length is {length}; it must be between 1 and the {held_length} tokens held",
            length=length,
            held_length=held_length,
        )


class CapacityExhaustedError(SpecpairError):
    """`retry_after` is the time in seconds after which a retry may succeed."""

    reason = "CAPACITY_EXHAUSTED"
    retry_after: float = 1.0

    def __init__(self, message: str, *, retry_after: float = 1.0, **metadata: object):
        super().__init__(message, **metadata)
        self.retry_after = retry_after


class NotFiniteError(SpecpairError):
    reason = "NOT_FINITE"

    def __init__(self) -> None:
        super().__init__("the model produced NaN or infinite logits for this request")


class ForwardFailedError(SpecpairError):
    """The cause is in the log."""

    reason = "FORWARD_FAILED"

    def __init__(self) -> None:
        super().__init__("a forward pass failed")


class NotSupportedError(SpecpairError):
    reason = "NOT_SUPPORTED"


class ModelRefusedError(SpecpairError):
    reason = "NOT_SUPPORTED"


class PeerUnavailableError(SpecpairError):
    reason = "PEER_UNAVAILABLE"


class StartingError(PeerUnavailableError):
    reason = "STARTING"

    def __init__(self) -> None:
        super().__init__("the service is starting")


class ClientStalledError(SpecpairError):
    """`seconds` is how long the server waited."""

    reason = "CLIENT_STALLED"

    def __init__(self, seconds: float):
        super().__init__(f"the client read nothing for {seconds:g} s", limit=f"{seconds:g}")


class ShuttingDownError(SpecpairError):
    reason = "SHUTTING_DOWN"

    def __init__(self) -> None:
        super().__init__("the process is shutting down")


class UnauthenticatedError(SpecpairError):
    reason = "UNAUTHENTICATED"

    def __init__(self) -> None:
        super().__init__("a valid bearer token is needed")


class VocabularyMismatchError(SpecpairError):
    reason = "VOCABULARY_MISMATCH"
