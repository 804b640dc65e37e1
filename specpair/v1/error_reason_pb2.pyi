from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_PROMPT_TOO_LONG: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_DISTRIBUTION: _ClassVar[ErrorReason]
    ERROR_REASON_SEQUENCE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_BASE_LENGTH_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_STEP: _ClassVar[ErrorReason]
    ERROR_REASON_CONFLICTING_BODY: _ClassVar[ErrorReason]
    ERROR_REASON_LENGTH_NOT_REACHED: _ClassVar[ErrorReason]
    ERROR_REASON_CAPACITY_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_FINITE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_SUPPORTED: _ClassVar[ErrorReason]
    ERROR_REASON_PEER_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_SHUTTING_DOWN: _ClassVar[ErrorReason]
    ERROR_REASON_VOCABULARY_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_FORWARD_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_STARTING: _ClassVar[ErrorReason]
    ERROR_REASON_CLIENT_STALLED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_GRAMMAR: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_PROMPT_TOO_LONG: ErrorReason
ERROR_REASON_INVALID_DISTRIBUTION: ErrorReason
ERROR_REASON_SEQUENCE_NOT_FOUND: ErrorReason
ERROR_REASON_BASE_LENGTH_MISMATCH: ErrorReason
ERROR_REASON_STALE_STEP: ErrorReason
ERROR_REASON_CONFLICTING_BODY: ErrorReason
ERROR_REASON_LENGTH_NOT_REACHED: ErrorReason
ERROR_REASON_CAPACITY_EXHAUSTED: ErrorReason
ERROR_REASON_NOT_FINITE: ErrorReason
ERROR_REASON_NOT_SUPPORTED: ErrorReason
ERROR_REASON_PEER_UNAVAILABLE: ErrorReason
ERROR_REASON_SHUTTING_DOWN: ErrorReason
ERROR_REASON_VOCABULARY_MISMATCH: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_FORWARD_FAILED: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_STARTING: ErrorReason
ERROR_REASON_CLIENT_STALLED: ErrorReason
ERROR_REASON_INVALID_GRAMMAR: ErrorReason
