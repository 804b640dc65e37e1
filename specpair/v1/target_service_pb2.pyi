from specpair.v1 import beams_pb2 as _beams_pb2
from specpair.v1 import features_pb2 as _features_pb2
from specpair.v1 import logprobs_pb2 as _logprobs_pb2
from specpair.v1 import proposal_pb2 as _proposal_pb2
from specpair.v1 import stream_error_pb2 as _stream_error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VerifyProposalRequest(_message.Message):
    __slots__ = ("sequence_id", "step", "base_length", "appended_token_ids", "proposal", "include_probabilities", "feature_layers", "condition", "next_proposal_count", "next_proposal_min_confidence", "max_forced_tokens", "continuation", "may_go_on_plain", "run_length", "run_seconds")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LAYERS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PROPOSAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PROPOSAL_MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_FORCED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    MAY_GO_ON_PLAIN_FIELD_NUMBER: _ClassVar[int]
    RUN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    RUN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    step: int
    base_length: int
    appended_token_ids: _containers.RepeatedScalarFieldContainer[int]
    proposal: _proposal_pb2.Proposal
    include_probabilities: bool
    feature_layers: _containers.RepeatedScalarFieldContainer[int]
    condition: Condition
    next_proposal_count: int
    next_proposal_min_confidence: float
    max_forced_tokens: int
    continuation: Continuation
    may_go_on_plain: bool
    run_length: int
    run_seconds: float
    def __init__(self, sequence_id: _Optional[str] = ..., step: _Optional[int] = ..., base_length: _Optional[int] = ..., appended_token_ids: _Optional[_Iterable[int]] = ..., proposal: _Optional[_Union[_proposal_pb2.Proposal, _Mapping]] = ..., include_probabilities: _Optional[bool] = ..., feature_layers: _Optional[_Iterable[int]] = ..., condition: _Optional[_Union[Condition, _Mapping]] = ..., next_proposal_count: _Optional[int] = ..., next_proposal_min_confidence: _Optional[float] = ..., max_forced_tokens: _Optional[int] = ..., continuation: _Optional[_Union[Continuation, _Mapping]] = ..., may_go_on_plain: _Optional[bool] = ..., run_length: _Optional[int] = ..., run_seconds: _Optional[float] = ...) -> None: ...

class Continuation(_message.Message):
    __slots__ = ("next_proposal_count", "next_proposal_min_confidence", "run_length", "run_seconds")
    NEXT_PROPOSAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PROPOSAL_MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    RUN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    next_proposal_count: int
    next_proposal_min_confidence: float
    run_length: int
    run_seconds: float
    def __init__(self, next_proposal_count: _Optional[int] = ..., next_proposal_min_confidence: _Optional[float] = ..., run_length: _Optional[int] = ..., run_seconds: _Optional[float] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("step", "accepted_count", "next_token_id")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    step: int
    accepted_count: int
    next_token_id: int
    def __init__(self, step: _Optional[int] = ..., accepted_count: _Optional[int] = ..., next_token_id: _Optional[int] = ...) -> None: ...

class VerifyProposalResponse(_message.Message):
    __slots__ = ("instance_id", "step", "accepted_count", "next_token_id", "length", "queue_time_us", "compute_time_us", "logprobs", "batch_token_count", "target_probabilities", "draft_probabilities", "rollback_time_ns", "accepted_path", "features", "next_proposal", "forced_token_ids", "has_gone_on_plain", "cached_token_count", "run_token_ids", "run_proposed_counts", "run_accepted_counts", "proposing_time_us", "run_tree_token_counts", "run_ended_at_leaf")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TARGET_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_PATH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    FORCED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    HAS_GONE_ON_PLAIN_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUN_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    RUN_PROPOSED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    RUN_ACCEPTED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PROPOSING_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RUN_TREE_TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    RUN_ENDED_AT_LEAF_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    step: int
    accepted_count: int
    next_token_id: int
    length: int
    queue_time_us: int
    compute_time_us: int
    logprobs: _containers.RepeatedCompositeFieldContainer[_logprobs_pb2.TokenLogprobs]
    batch_token_count: int
    target_probabilities: _containers.RepeatedScalarFieldContainer[float]
    draft_probabilities: _containers.RepeatedScalarFieldContainer[float]
    rollback_time_ns: int
    accepted_path: _containers.RepeatedScalarFieldContainer[int]
    features: _features_pb2.Features
    next_proposal: _proposal_pb2.Proposal
    forced_token_ids: _containers.RepeatedScalarFieldContainer[int]
    has_gone_on_plain: bool
    cached_token_count: int
    run_token_ids: _containers.RepeatedScalarFieldContainer[int]
    run_proposed_counts: _containers.RepeatedScalarFieldContainer[int]
    run_accepted_counts: _containers.RepeatedScalarFieldContainer[int]
    proposing_time_us: int
    run_tree_token_counts: _containers.RepeatedScalarFieldContainer[int]
    run_ended_at_leaf: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, instance_id: _Optional[str] = ..., step: _Optional[int] = ..., accepted_count: _Optional[int] = ..., next_token_id: _Optional[int] = ..., length: _Optional[int] = ..., queue_time_us: _Optional[int] = ..., compute_time_us: _Optional[int] = ..., logprobs: _Optional[_Iterable[_Union[_logprobs_pb2.TokenLogprobs, _Mapping]]] = ..., batch_token_count: _Optional[int] = ..., target_probabilities: _Optional[_Iterable[float]] = ..., draft_probabilities: _Optional[_Iterable[float]] = ..., rollback_time_ns: _Optional[int] = ..., accepted_path: _Optional[_Iterable[int]] = ..., features: _Optional[_Union[_features_pb2.Features, _Mapping]] = ..., next_proposal: _Optional[_Union[_proposal_pb2.Proposal, _Mapping]] = ..., forced_token_ids: _Optional[_Iterable[int]] = ..., has_gone_on_plain: _Optional[bool] = ..., cached_token_count: _Optional[int] = ..., run_token_ids: _Optional[_Iterable[int]] = ..., run_proposed_counts: _Optional[_Iterable[int]] = ..., run_accepted_counts: _Optional[_Iterable[int]] = ..., proposing_time_us: _Optional[int] = ..., run_tree_token_counts: _Optional[_Iterable[int]] = ..., run_ended_at_leaf: _Optional[_Iterable[bool]] = ...) -> None: ...

class StreamVerificationsRequest(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[VerificationCall]
    def __init__(self, calls: _Optional[_Iterable[_Union[VerificationCall, _Mapping]]] = ...) -> None: ...

class VerificationCall(_message.Message):
    __slots__ = ("call_id", "request", "trace_context", "is_unanswered")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    IS_UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: VerifyProposalRequest
    trace_context: str
    is_unanswered: bool
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[_Union[VerifyProposalRequest, _Mapping]] = ..., trace_context: _Optional[str] = ..., is_unanswered: _Optional[bool] = ...) -> None: ...

class StreamVerificationsResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[VerificationAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[VerificationAnswer, _Mapping]]] = ...) -> None: ...

class VerificationAnswer(_message.Message):
    __slots__ = ("call_id", "response", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    response: VerifyProposalResponse
    error: _stream_error_pb2.StreamError
    def __init__(self, call_id: _Optional[int] = ..., response: _Optional[_Union[VerifyProposalResponse, _Mapping]] = ..., error: _Optional[_Union[_stream_error_pb2.StreamError, _Mapping]] = ...) -> None: ...

class ScoreTokensRequest(_message.Message):
    __slots__ = ("token_ids", "logprobs")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: int
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[int] = ...) -> None: ...

class ScoreTokensResponse(_message.Message):
    __slots__ = ("instance_id", "logprobs")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    logprobs: _containers.RepeatedCompositeFieldContainer[_logprobs_pb2.TokenLogprobs]
    def __init__(self, instance_id: _Optional[str] = ..., logprobs: _Optional[_Iterable[_Union[_logprobs_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class ScoreTreeRequest(_message.Message):
    __slots__ = ("sequence_id", "step", "base_length", "appended_token_ids", "tree", "asked_nodes", "logprobs")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    ASKED_NODES_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    step: int
    base_length: int
    appended_token_ids: _containers.RepeatedScalarFieldContainer[int]
    tree: _beams_pb2.BeamTree
    asked_nodes: _containers.RepeatedScalarFieldContainer[int]
    logprobs: int
    def __init__(self, sequence_id: _Optional[str] = ..., step: _Optional[int] = ..., base_length: _Optional[int] = ..., appended_token_ids: _Optional[_Iterable[int]] = ..., tree: _Optional[_Union[_beams_pb2.BeamTree, _Mapping]] = ..., asked_nodes: _Optional[_Iterable[int]] = ..., logprobs: _Optional[int] = ...) -> None: ...

class ScoreTreeResponse(_message.Message):
    __slots__ = ("instance_id", "step", "token_ids", "logprobs", "queue_time_us", "compute_time_us", "rollback_time_ns", "batch_token_count", "cached_token_count")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    step: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    queue_time_us: int
    compute_time_us: int
    rollback_time_ns: int
    batch_token_count: int
    cached_token_count: int
    def __init__(self, instance_id: _Optional[str] = ..., step: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., queue_time_us: _Optional[int] = ..., compute_time_us: _Optional[int] = ..., rollback_time_ns: _Optional[int] = ..., batch_token_count: _Optional[int] = ..., cached_token_count: _Optional[int] = ...) -> None: ...
