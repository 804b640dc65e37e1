from specpair.v1 import beams_pb2 as _beams_pb2
from specpair.v1 import drafter_pb2 as _drafter_pb2
from specpair.v1 import proposal_pb2 as _proposal_pb2
from specpair.v1 import sequence_service_pb2 as _sequence_service_pb2
from specpair.v1 import stream_error_pb2 as _stream_error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TakeTargetTokenizerRequest(_message.Message):
    __slots__ = ("tokenizer_json_chunk", "bos_token", "eos_token")
    TOKENIZER_JSON_CHUNK_FIELD_NUMBER: _ClassVar[int]
    BOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tokenizer_json_chunk: bytes
    bos_token: str
    eos_token: str
    def __init__(self, tokenizer_json_chunk: _Optional[bytes] = ..., bos_token: _Optional[str] = ..., eos_token: _Optional[str] = ...) -> None: ...

class TakeTargetTokenizerResponse(_message.Message):
    __slots__ = ("instance_id", "translation")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    translation: _sequence_service_pb2.VocabularyTranslation
    def __init__(self, instance_id: _Optional[str] = ..., translation: _Optional[_Union[_sequence_service_pb2.VocabularyTranslation, _Mapping]] = ...) -> None: ...

class ProposeTokensRequest(_message.Message):
    __slots__ = ("sequence_id", "step", "base_length", "appended_token_ids", "num_speculative_tokens", "min_confidence", "work_ahead", "has_proposal", "max_tree_tokens", "is_plain")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    WORK_AHEAD_FIELD_NUMBER: _ClassVar[int]
    HAS_PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MAX_TREE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_PLAIN_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    step: int
    base_length: int
    appended_token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_speculative_tokens: int
    min_confidence: float
    work_ahead: WorkAhead
    has_proposal: bool
    max_tree_tokens: int
    is_plain: bool
    def __init__(self, sequence_id: _Optional[str] = ..., step: _Optional[int] = ..., base_length: _Optional[int] = ..., appended_token_ids: _Optional[_Iterable[int]] = ..., num_speculative_tokens: _Optional[int] = ..., min_confidence: _Optional[float] = ..., work_ahead: _Optional[_Union[WorkAhead, _Mapping]] = ..., has_proposal: _Optional[bool] = ..., max_tree_tokens: _Optional[int] = ..., is_plain: _Optional[bool] = ...) -> None: ...

class WorkAhead(_message.Message):
    __slots__ = ("max_outcomes", "num_speculative_tokens", "min_confidence", "max_length", "withholds_distributions")
    MAX_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WITHHOLDS_DISTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    max_outcomes: int
    num_speculative_tokens: int
    min_confidence: float
    max_length: int
    withholds_distributions: bool
    def __init__(self, max_outcomes: _Optional[int] = ..., num_speculative_tokens: _Optional[int] = ..., min_confidence: _Optional[float] = ..., max_length: _Optional[int] = ..., withholds_distributions: _Optional[bool] = ...) -> None: ...

class ProposeTokensResponse(_message.Message):
    __slots__ = ("instance_id", "step", "proposal", "queue_time_us", "compute_time_us", "batch_size", "drafter", "rollback_time_ns", "was_prepared", "guessed_token_count", "accepted_guess_count", "pass_count")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    WAS_PREPARED_FIELD_NUMBER: _ClassVar[int]
    GUESSED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_GUESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    PASS_COUNT_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    step: int
    proposal: _proposal_pb2.Proposal
    queue_time_us: int
    compute_time_us: int
    batch_size: int
    drafter: _drafter_pb2.Drafter
    rollback_time_ns: int
    was_prepared: bool
    guessed_token_count: int
    accepted_guess_count: int
    pass_count: int
    def __init__(self, instance_id: _Optional[str] = ..., step: _Optional[int] = ..., proposal: _Optional[_Union[_proposal_pb2.Proposal, _Mapping]] = ..., queue_time_us: _Optional[int] = ..., compute_time_us: _Optional[int] = ..., batch_size: _Optional[int] = ..., drafter: _Optional[_Union[_drafter_pb2.Drafter, str]] = ..., rollback_time_ns: _Optional[int] = ..., was_prepared: _Optional[bool] = ..., guessed_token_count: _Optional[int] = ..., accepted_guess_count: _Optional[int] = ..., pass_count: _Optional[int] = ...) -> None: ...

class StreamProposalsRequest(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[ProposalCall]
    def __init__(self, calls: _Optional[_Iterable[_Union[ProposalCall, _Mapping]]] = ...) -> None: ...

class ProposalCall(_message.Message):
    __slots__ = ("call_id", "request", "trace_context", "is_unanswered")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    IS_UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    request: ProposeTokensRequest
    trace_context: str
    is_unanswered: bool
    def __init__(self, call_id: _Optional[int] = ..., request: _Optional[_Union[ProposeTokensRequest, _Mapping]] = ..., trace_context: _Optional[str] = ..., is_unanswered: _Optional[bool] = ...) -> None: ...

class StreamProposalsResponse(_message.Message):
    __slots__ = ("answers", "ahead_blocks")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ProposalAnswer]
    ahead_blocks: _containers.RepeatedCompositeFieldContainer[AheadBlock]
    def __init__(self, answers: _Optional[_Iterable[_Union[ProposalAnswer, _Mapping]]] = ..., ahead_blocks: _Optional[_Iterable[_Union[AheadBlock, _Mapping]]] = ...) -> None: ...

class AheadBlock(_message.Message):
    __slots__ = ("sequence_id", "step", "base_length", "accepted_count", "next_token_id", "proposal", "compute_time_us")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    step: int
    base_length: int
    accepted_count: int
    next_token_id: int
    proposal: _proposal_pb2.Proposal
    compute_time_us: int
    def __init__(self, sequence_id: _Optional[str] = ..., step: _Optional[int] = ..., base_length: _Optional[int] = ..., accepted_count: _Optional[int] = ..., next_token_id: _Optional[int] = ..., proposal: _Optional[_Union[_proposal_pb2.Proposal, _Mapping]] = ..., compute_time_us: _Optional[int] = ...) -> None: ...

class ProposalAnswer(_message.Message):
    __slots__ = ("call_id", "response", "error")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    response: ProposeTokensResponse
    error: _stream_error_pb2.StreamError
    def __init__(self, call_id: _Optional[int] = ..., response: _Optional[_Union[ProposeTokensResponse, _Mapping]] = ..., error: _Optional[_Union[_stream_error_pb2.StreamError, _Mapping]] = ...) -> None: ...

class GrowBeamsRequest(_message.Message):
    __slots__ = ("sequence_id", "step", "base_length", "appended_token_ids", "tree", "beam_nodes", "beam_scores", "num_speculative_tokens", "num_beams")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    BEAM_NODES_FIELD_NUMBER: _ClassVar[int]
    BEAM_SCORES_FIELD_NUMBER: _ClassVar[int]
    NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    step: int
    base_length: int
    appended_token_ids: _containers.RepeatedScalarFieldContainer[int]
    tree: _beams_pb2.BeamTree
    beam_nodes: _containers.RepeatedScalarFieldContainer[int]
    beam_scores: _containers.RepeatedScalarFieldContainer[float]
    num_speculative_tokens: int
    num_beams: int
    def __init__(self, sequence_id: _Optional[str] = ..., step: _Optional[int] = ..., base_length: _Optional[int] = ..., appended_token_ids: _Optional[_Iterable[int]] = ..., tree: _Optional[_Union[_beams_pb2.BeamTree, _Mapping]] = ..., beam_nodes: _Optional[_Iterable[int]] = ..., beam_scores: _Optional[_Iterable[float]] = ..., num_speculative_tokens: _Optional[int] = ..., num_beams: _Optional[int] = ...) -> None: ...

class GrowBeamsResponse(_message.Message):
    __slots__ = ("instance_id", "step", "grown", "queue_time_us", "compute_time_us", "rollback_time_ns", "batch_size")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GROWN_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    step: int
    grown: _beams_pb2.BeamTree
    queue_time_us: int
    compute_time_us: int
    rollback_time_ns: int
    batch_size: int
    def __init__(self, instance_id: _Optional[str] = ..., step: _Optional[int] = ..., grown: _Optional[_Union[_beams_pb2.BeamTree, _Mapping]] = ..., queue_time_us: _Optional[int] = ..., compute_time_us: _Optional[int] = ..., rollback_time_ns: _Optional[int] = ..., batch_size: _Optional[int] = ...) -> None: ...
