from specpair.v1 import drafter_pb2 as _drafter_pb2
from specpair.v1 import logprobs_pb2 as _logprobs_pb2
from specpair.v1 import sampling_pb2 as _sampling_pb2
from specpair.v1 import sequence_service_pb2 as _sequence_service_pb2
from specpair.v1 import structured_output_pb2 as _structured_output_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MergeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MERGE_MODE_UNSPECIFIED: _ClassVar[MergeMode]
    MERGE_MODE_TREE: _ClassVar[MergeMode]
    MERGE_MODE_NONE: _ClassVar[MergeMode]

class EarlyStopping(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EARLY_STOPPING_UNSPECIFIED: _ClassVar[EarlyStopping]
    EARLY_STOPPING_HEURISTIC: _ClassVar[EarlyStopping]
    EARLY_STOPPING_FIRST: _ClassVar[EarlyStopping]
    EARLY_STOPPING_NEVER: _ClassVar[EarlyStopping]

class WorkAheadMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORK_AHEAD_MODE_UNSPECIFIED: _ClassVar[WorkAheadMode]
    WORK_AHEAD_MODE_AUTO: _ClassVar[WorkAheadMode]
    WORK_AHEAD_MODE_ON: _ClassVar[WorkAheadMode]
    WORK_AHEAD_MODE_OFF: _ClassVar[WorkAheadMode]

class AheadOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AHEAD_OUTCOME_UNSPECIFIED: _ClassVar[AheadOutcome]
    AHEAD_OUTCOME_HIT: _ClassVar[AheadOutcome]
    AHEAD_OUTCOME_LATE: _ClassVar[AheadOutcome]
    AHEAD_OUTCOME_MISS: _ClassVar[AheadOutcome]
    AHEAD_OUTCOME_PLAIN: _ClassVar[AheadOutcome]

class TokenOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_ORIGIN_UNSPECIFIED: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_ACCEPTED: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_CORRECTION: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_BONUS: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_TARGET: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_REJECTED: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_PROMPT: _ClassVar[TokenOrigin]
    TOKEN_ORIGIN_FORCED: _ClassVar[TokenOrigin]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
MERGE_MODE_UNSPECIFIED: MergeMode
MERGE_MODE_TREE: MergeMode
MERGE_MODE_NONE: MergeMode
EARLY_STOPPING_UNSPECIFIED: EarlyStopping
EARLY_STOPPING_HEURISTIC: EarlyStopping
EARLY_STOPPING_FIRST: EarlyStopping
EARLY_STOPPING_NEVER: EarlyStopping
WORK_AHEAD_MODE_UNSPECIFIED: WorkAheadMode
WORK_AHEAD_MODE_AUTO: WorkAheadMode
WORK_AHEAD_MODE_ON: WorkAheadMode
WORK_AHEAD_MODE_OFF: WorkAheadMode
AHEAD_OUTCOME_UNSPECIFIED: AheadOutcome
AHEAD_OUTCOME_HIT: AheadOutcome
AHEAD_OUTCOME_LATE: AheadOutcome
AHEAD_OUTCOME_MISS: AheadOutcome
AHEAD_OUTCOME_PLAIN: AheadOutcome
TOKEN_ORIGIN_UNSPECIFIED: TokenOrigin
TOKEN_ORIGIN_ACCEPTED: TokenOrigin
TOKEN_ORIGIN_CORRECTION: TokenOrigin
TOKEN_ORIGIN_BONUS: TokenOrigin
TOKEN_ORIGIN_TARGET: TokenOrigin
TOKEN_ORIGIN_REJECTED: TokenOrigin
TOKEN_ORIGIN_PROMPT: TokenOrigin
TOKEN_ORIGIN_FORCED: TokenOrigin
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class GenerateTokensRequest(_message.Message):
    __slots__ = ("text", "token_ids", "chat", "sampling", "max_tokens", "stop_strings", "ignore_eos", "num_speculative_tokens", "rule", "encoding", "include_rejected", "lenience", "n", "best_of", "logprobs", "prompt_logprobs", "echo", "drafter", "include_rounds", "resumed_token_ids", "work_ahead", "num_tree_tokens", "encoder_text", "encoder_token_ids", "structured_output", "drafts", "merge", "num_beams", "length_penalty", "early_stopping")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_STRINGS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REJECTED_FIELD_NUMBER: _ClassVar[int]
    LENIENCE_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    BEST_OF_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    WORK_AHEAD_FIELD_NUMBER: _ClassVar[int]
    NUM_TREE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_TEXT_FIELD_NUMBER: _ClassVar[int]
    ENCODER_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: TokenIds
    chat: Chat
    sampling: _sampling_pb2.SamplingOptions
    max_tokens: int
    stop_strings: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    num_speculative_tokens: int
    rule: _sampling_pb2.AcceptanceRule
    encoding: _sampling_pb2.DistributionEncoding
    include_rejected: bool
    lenience: float
    n: int
    best_of: int
    logprobs: int
    prompt_logprobs: int
    echo: bool
    drafter: _drafter_pb2.Drafter
    include_rounds: bool
    resumed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    work_ahead: WorkAheadMode
    num_tree_tokens: int
    encoder_text: str
    encoder_token_ids: TokenIds
    structured_output: _structured_output_pb2.StructuredOutput
    drafts: _containers.RepeatedScalarFieldContainer[str]
    merge: MergeMode
    num_beams: int
    length_penalty: float
    early_stopping: EarlyStopping
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ..., max_tokens: _Optional[int] = ..., stop_strings: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., num_speculative_tokens: _Optional[int] = ..., rule: _Optional[_Union[_sampling_pb2.AcceptanceRule, str]] = ..., encoding: _Optional[_Union[_sampling_pb2.DistributionEncoding, str]] = ..., include_rejected: _Optional[bool] = ..., lenience: _Optional[float] = ..., n: _Optional[int] = ..., best_of: _Optional[int] = ..., logprobs: _Optional[int] = ..., prompt_logprobs: _Optional[int] = ..., echo: _Optional[bool] = ..., drafter: _Optional[_Union[_drafter_pb2.Drafter, str]] = ..., include_rounds: _Optional[bool] = ..., resumed_token_ids: _Optional[_Iterable[int]] = ..., work_ahead: _Optional[_Union[WorkAheadMode, str]] = ..., num_tree_tokens: _Optional[int] = ..., encoder_text: _Optional[str] = ..., encoder_token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., structured_output: _Optional[_Union[_structured_output_pb2.StructuredOutput, _Mapping]] = ..., drafts: _Optional[_Iterable[str]] = ..., merge: _Optional[_Union[MergeMode, str]] = ..., num_beams: _Optional[int] = ..., length_penalty: _Optional[float] = ..., early_stopping: _Optional[_Union[EarlyStopping, str]] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages", "tools", "continue_final_message", "add_generation_prompt", "chat_template_kwargs")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ADD_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    tools: _containers.RepeatedScalarFieldContainer[str]
    continue_final_message: bool
    add_generation_prompt: bool
    chat_template_kwargs: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., tools: _Optional[_Iterable[str]] = ..., continue_final_message: _Optional[bool] = ..., add_generation_prompt: _Optional[bool] = ..., chat_template_kwargs: _Optional[str] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REASONING_CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_id: str
    reasoning_content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ..., reasoning_content: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class GenerateTokensResponse(_message.Message):
    __slots__ = ("tokens", "text", "rejected", "summary", "choice_index", "prompt_tokens", "round")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[GeneratedToken]
    text: str
    rejected: _containers.RepeatedCompositeFieldContainer[GeneratedToken]
    summary: GenerationSummary
    choice_index: int
    prompt_tokens: _containers.RepeatedCompositeFieldContainer[GeneratedToken]
    round: RoundReport
    def __init__(self, tokens: _Optional[_Iterable[_Union[GeneratedToken, _Mapping]]] = ..., text: _Optional[str] = ..., rejected: _Optional[_Iterable[_Union[GeneratedToken, _Mapping]]] = ..., summary: _Optional[_Union[GenerationSummary, _Mapping]] = ..., choice_index: _Optional[int] = ..., prompt_tokens: _Optional[_Iterable[_Union[GeneratedToken, _Mapping]]] = ..., round: _Optional[_Union[RoundReport, _Mapping]] = ...) -> None: ...

class RoundReport(_message.Message):
    __slots__ = ("step", "proposed", "draft", "verify", "batch_token_count", "ahead")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    step: int
    proposed: _containers.RepeatedCompositeFieldContainer[ProposedToken]
    draft: CallTimes
    verify: CallTimes
    batch_token_count: int
    ahead: AheadOutcome
    def __init__(self, step: _Optional[int] = ..., proposed: _Optional[_Iterable[_Union[ProposedToken, _Mapping]]] = ..., draft: _Optional[_Union[CallTimes, _Mapping]] = ..., verify: _Optional[_Union[CallTimes, _Mapping]] = ..., batch_token_count: _Optional[int] = ..., ahead: _Optional[_Union[AheadOutcome, str]] = ...) -> None: ...

class ProposedToken(_message.Message):
    __slots__ = ("id", "text", "accepted", "target_probability", "draft_probability", "parent_index", "draft_names")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TARGET_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    PARENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DRAFT_NAMES_FIELD_NUMBER: _ClassVar[int]
    id: int
    text: str
    accepted: bool
    target_probability: float
    draft_probability: float
    parent_index: int
    draft_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ..., accepted: _Optional[bool] = ..., target_probability: _Optional[float] = ..., draft_probability: _Optional[float] = ..., parent_index: _Optional[int] = ..., draft_names: _Optional[_Iterable[str]] = ...) -> None: ...

class CallTimes(_message.Message):
    __slots__ = ("start_us", "elapsed_us", "queue_us", "compute_us")
    START_US_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    start_us: int
    elapsed_us: int
    queue_us: int
    compute_us: int
    def __init__(self, start_us: _Optional[int] = ..., elapsed_us: _Optional[int] = ..., queue_us: _Optional[int] = ..., compute_us: _Optional[int] = ...) -> None: ...

class GeneratedToken(_message.Message):
    __slots__ = ("id", "text", "origin", "logprobs")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    id: int
    text: str
    origin: TokenOrigin
    logprobs: _logprobs_pb2.TokenLogprobs
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ..., origin: _Optional[_Union[TokenOrigin, str]] = ..., logprobs: _Optional[_Union[_logprobs_pb2.TokenLogprobs, _Mapping]] = ...) -> None: ...

class GenerationSummary(_message.Message):
    __slots__ = ("finish_reason", "prompt_token_count", "completion_token_count", "seed", "speculation", "time_to_first_token_us", "total_time_us", "cumulative_logprob", "resumed_token_count", "encoder_token_count", "beam_score", "cached_prompt_token_count", "sampling")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_FIRST_TOKEN_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIME_US_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ENCODER_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    BEAM_SCORE_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    finish_reason: FinishReason
    prompt_token_count: int
    completion_token_count: int
    seed: int
    speculation: SpeculationSummary
    time_to_first_token_us: int
    total_time_us: int
    cumulative_logprob: float
    resumed_token_count: int
    encoder_token_count: int
    beam_score: float
    cached_prompt_token_count: int
    sampling: _sampling_pb2.SamplingOptions
    def __init__(self, finish_reason: _Optional[_Union[FinishReason, str]] = ..., prompt_token_count: _Optional[int] = ..., completion_token_count: _Optional[int] = ..., seed: _Optional[int] = ..., speculation: _Optional[_Union[SpeculationSummary, _Mapping]] = ..., time_to_first_token_us: _Optional[int] = ..., total_time_us: _Optional[int] = ..., cumulative_logprob: _Optional[float] = ..., resumed_token_count: _Optional[int] = ..., encoder_token_count: _Optional[int] = ..., beam_score: _Optional[float] = ..., cached_prompt_token_count: _Optional[int] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ...) -> None: ...

class SpeculationSummary(_message.Message):
    __slots__ = ("round_count", "draft_round_count", "draft_token_count", "accepted_token_count", "drafted_per_position", "accepted_per_position", "acceptance_rate", "tokens_per_round", "draft_time_us", "verify_time_us", "network_time_us", "fallback_count", "rule", "lenience", "lossy", "drafter", "adaptive", "ahead_hit_count", "ahead_late_count", "ahead_miss_count", "drafts", "own_draft", "forced_token_count", "ahead_plain_count")
    ROUND_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_ROUND_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_PER_POSITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_PER_POSITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_RATE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_ROUND_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TIME_US_FIELD_NUMBER: _ClassVar[int]
    VERIFY_TIME_US_FIELD_NUMBER: _ClassVar[int]
    NETWORK_TIME_US_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    LENIENCE_FIELD_NUMBER: _ClassVar[int]
    LOSSY_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    AHEAD_HIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_LATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_MISS_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    OWN_DRAFT_FIELD_NUMBER: _ClassVar[int]
    FORCED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_PLAIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    round_count: int
    draft_round_count: int
    draft_token_count: int
    accepted_token_count: int
    drafted_per_position: _containers.RepeatedScalarFieldContainer[int]
    accepted_per_position: _containers.RepeatedScalarFieldContainer[int]
    acceptance_rate: float
    tokens_per_round: float
    draft_time_us: int
    verify_time_us: int
    network_time_us: int
    fallback_count: int
    rule: _sampling_pb2.AcceptanceRule
    lenience: float
    lossy: bool
    drafter: _drafter_pb2.Drafter
    adaptive: bool
    ahead_hit_count: int
    ahead_late_count: int
    ahead_miss_count: int
    drafts: _containers.RepeatedCompositeFieldContainer[DraftSummary]
    own_draft: OwnDraftSummary
    forced_token_count: int
    ahead_plain_count: int
    def __init__(self, round_count: _Optional[int] = ..., draft_round_count: _Optional[int] = ..., draft_token_count: _Optional[int] = ..., accepted_token_count: _Optional[int] = ..., drafted_per_position: _Optional[_Iterable[int]] = ..., accepted_per_position: _Optional[_Iterable[int]] = ..., acceptance_rate: _Optional[float] = ..., tokens_per_round: _Optional[float] = ..., draft_time_us: _Optional[int] = ..., verify_time_us: _Optional[int] = ..., network_time_us: _Optional[int] = ..., fallback_count: _Optional[int] = ..., rule: _Optional[_Union[_sampling_pb2.AcceptanceRule, str]] = ..., lenience: _Optional[float] = ..., lossy: _Optional[bool] = ..., drafter: _Optional[_Union[_drafter_pb2.Drafter, str]] = ..., adaptive: _Optional[bool] = ..., ahead_hit_count: _Optional[int] = ..., ahead_late_count: _Optional[int] = ..., ahead_miss_count: _Optional[int] = ..., drafts: _Optional[_Iterable[_Union[DraftSummary, _Mapping]]] = ..., own_draft: _Optional[_Union[OwnDraftSummary, _Mapping]] = ..., forced_token_count: _Optional[int] = ..., ahead_plain_count: _Optional[int] = ...) -> None: ...

class OwnDraftSummary(_message.Message):
    __slots__ = ("guessed_token_count", "accepted_guess_count", "pass_count")
    GUESSED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_GUESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    PASS_COUNT_FIELD_NUMBER: _ClassVar[int]
    guessed_token_count: int
    accepted_guess_count: int
    pass_count: int
    def __init__(self, guessed_token_count: _Optional[int] = ..., accepted_guess_count: _Optional[int] = ..., pass_count: _Optional[int] = ...) -> None: ...

class DraftSummary(_message.Message):
    __slots__ = ("name", "draft_round_count", "draft_token_count", "accepted_token_count", "late_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRAFT_ROUND_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    draft_round_count: int
    draft_token_count: int
    accepted_token_count: int
    late_count: int
    def __init__(self, name: _Optional[str] = ..., draft_round_count: _Optional[int] = ..., draft_token_count: _Optional[int] = ..., accepted_token_count: _Optional[int] = ..., late_count: _Optional[int] = ...) -> None: ...

class GetPairInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPairInfoResponse(_message.Message):
    __slots__ = ("draft", "target", "version", "num_speculative_tokens", "max_num_speculative_tokens", "request_count", "proposal_worth", "max_num_beams", "drafts", "merge", "has_draft_service", "rule", "sampling_defaults")
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_WORTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    HAS_DRAFT_SERVICE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    draft: _sequence_service_pb2.GetModelInfoResponse
    target: _sequence_service_pb2.GetModelInfoResponse
    version: str
    num_speculative_tokens: int
    max_num_speculative_tokens: int
    request_count: int
    proposal_worth: ProposalWorth
    max_num_beams: int
    drafts: _containers.RepeatedCompositeFieldContainer[NamedDraft]
    merge: MergeMode
    has_draft_service: bool
    rule: _sampling_pb2.AcceptanceRule
    sampling_defaults: _sampling_pb2.SamplingOptions
    def __init__(self, draft: _Optional[_Union[_sequence_service_pb2.GetModelInfoResponse, _Mapping]] = ..., target: _Optional[_Union[_sequence_service_pb2.GetModelInfoResponse, _Mapping]] = ..., version: _Optional[str] = ..., num_speculative_tokens: _Optional[int] = ..., max_num_speculative_tokens: _Optional[int] = ..., request_count: _Optional[int] = ..., proposal_worth: _Optional[_Union[ProposalWorth, _Mapping]] = ..., max_num_beams: _Optional[int] = ..., drafts: _Optional[_Iterable[_Union[NamedDraft, _Mapping]]] = ..., merge: _Optional[_Union[MergeMode, str]] = ..., has_draft_service: _Optional[bool] = ..., rule: _Optional[_Union[_sampling_pb2.AcceptanceRule, str]] = ..., sampling_defaults: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ...) -> None: ...

class NamedDraft(_message.Message):
    __slots__ = ("name", "draft")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    name: str
    draft: _sequence_service_pb2.GetModelInfoResponse
    def __init__(self, name: _Optional[str] = ..., draft: _Optional[_Union[_sequence_service_pb2.GetModelInfoResponse, _Mapping]] = ...) -> None: ...

class ProposalWorth(_message.Message):
    __slots__ = ("output_count", "break_even_acceptance", "acceptance", "best_num_speculative_tokens", "gain")
    OUTPUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BREAK_EVEN_ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    BEST_NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    output_count: int
    break_even_acceptance: float
    acceptance: float
    best_num_speculative_tokens: int
    gain: float
    def __init__(self, output_count: _Optional[int] = ..., break_even_acceptance: _Optional[float] = ..., acceptance: _Optional[float] = ..., best_num_speculative_tokens: _Optional[int] = ..., gain: _Optional[float] = ...) -> None: ...
