from specpair.v1 import drafter_pb2 as _drafter_pb2
from specpair.v1 import sampling_pb2 as _sampling_pb2
from specpair.v1 import structured_output_pb2 as _structured_output_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VocabularyMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VOCABULARY_METHOD_UNSPECIFIED: _ClassVar[VocabularyMethod]
    VOCABULARY_METHOD_TLI: _ClassVar[VocabularyMethod]
    VOCABULARY_METHOD_SLEM: _ClassVar[VocabularyMethod]
VOCABULARY_METHOD_UNSPECIFIED: VocabularyMethod
VOCABULARY_METHOD_TLI: VocabularyMethod
VOCABULARY_METHOD_SLEM: VocabularyMethod

class GetModelInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelInfoResponse(_message.Message):
    __slots__ = ("instance_id", "model_name", "architecture", "parameter_count", "vocab_size", "max_model_len", "max_num_speculative_tokens", "max_num_seqs", "dtype", "device", "cache", "block_size", "block_count", "free_block_count", "sequence_count", "eos_token_ids", "deterministic", "drafters", "quantization", "divergence", "pass_costs", "runs_trees", "translations", "takes_draft_index", "own_draft", "own_num_speculative_tokens", "runs_beams", "tensor_parallel_size", "masks_tokens", "encoder_decoder", "runner", "cached_token_seconds", "goes_on_plain", "sampling_defaults", "takes_withheld_distributions", "longest_run")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    FREE_BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCE_FIELD_NUMBER: _ClassVar[int]
    PASS_COSTS_FIELD_NUMBER: _ClassVar[int]
    RUNS_TREES_FIELD_NUMBER: _ClassVar[int]
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    TAKES_DRAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    OWN_DRAFT_FIELD_NUMBER: _ClassVar[int]
    OWN_NUM_SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNS_BEAMS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MASKS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_DECODER_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_PLAIN_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    TAKES_WITHHELD_DISTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_RUN_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    model_name: str
    architecture: str
    parameter_count: int
    vocab_size: int
    max_model_len: int
    max_num_speculative_tokens: int
    max_num_seqs: int
    dtype: str
    device: str
    cache: str
    block_size: int
    block_count: int
    free_block_count: int
    sequence_count: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    deterministic: bool
    drafters: _containers.RepeatedScalarFieldContainer[_drafter_pb2.Drafter]
    quantization: str
    divergence: Divergence
    pass_costs: _containers.RepeatedCompositeFieldContainer[PassCost]
    runs_trees: bool
    translations: _containers.RepeatedCompositeFieldContainer[VocabularyTranslation]
    takes_draft_index: bool
    own_draft: str
    own_num_speculative_tokens: int
    runs_beams: bool
    tensor_parallel_size: int
    masks_tokens: bool
    encoder_decoder: EncoderDecoder
    runner: str
    cached_token_seconds: float
    goes_on_plain: bool
    sampling_defaults: _sampling_pb2.SamplingOptions
    takes_withheld_distributions: bool
    longest_run: int
    def __init__(self, instance_id: _Optional[str] = ..., model_name: _Optional[str] = ..., architecture: _Optional[str] = ..., parameter_count: _Optional[int] = ..., vocab_size: _Optional[int] = ..., max_model_len: _Optional[int] = ..., max_num_speculative_tokens: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., cache: _Optional[str] = ..., block_size: _Optional[int] = ..., block_count: _Optional[int] = ..., free_block_count: _Optional[int] = ..., sequence_count: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., deterministic: _Optional[bool] = ..., drafters: _Optional[_Iterable[_Union[_drafter_pb2.Drafter, str]]] = ..., quantization: _Optional[str] = ..., divergence: _Optional[_Union[Divergence, _Mapping]] = ..., pass_costs: _Optional[_Iterable[_Union[PassCost, _Mapping]]] = ..., runs_trees: _Optional[bool] = ..., translations: _Optional[_Iterable[_Union[VocabularyTranslation, _Mapping]]] = ..., takes_draft_index: _Optional[bool] = ..., own_draft: _Optional[str] = ..., own_num_speculative_tokens: _Optional[int] = ..., runs_beams: _Optional[bool] = ..., tensor_parallel_size: _Optional[int] = ..., masks_tokens: _Optional[bool] = ..., encoder_decoder: _Optional[_Union[EncoderDecoder, _Mapping]] = ..., runner: _Optional[str] = ..., cached_token_seconds: _Optional[float] = ..., goes_on_plain: _Optional[bool] = ..., sampling_defaults: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ..., takes_withheld_distributions: _Optional[bool] = ..., longest_run: _Optional[int] = ...) -> None: ...

class EncoderDecoder(_message.Message):
    __slots__ = ("max_encoder_len", "decoder_start_token_id")
    MAX_ENCODER_LEN_FIELD_NUMBER: _ClassVar[int]
    DECODER_START_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    max_encoder_len: int
    decoder_start_token_id: int
    def __init__(self, max_encoder_len: _Optional[int] = ..., decoder_start_token_id: _Optional[int] = ...) -> None: ...

class VocabularyTranslation(_message.Message):
    __slots__ = ("target_vocabulary", "method", "overlap", "shared_token_count", "greedy_method")
    TARGET_VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    SHARED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    GREEDY_METHOD_FIELD_NUMBER: _ClassVar[int]
    target_vocabulary: str
    method: VocabularyMethod
    overlap: float
    shared_token_count: int
    greedy_method: VocabularyMethod
    def __init__(self, target_vocabulary: _Optional[str] = ..., method: _Optional[_Union[VocabularyMethod, str]] = ..., overlap: _Optional[float] = ..., shared_token_count: _Optional[int] = ..., greedy_method: _Optional[_Union[VocabularyMethod, str]] = ...) -> None: ...

class PassCost(_message.Message):
    __slots__ = ("token_count", "seconds")
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    token_count: int
    seconds: float
    def __init__(self, token_count: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Divergence(_message.Message):
    __slots__ = ("mean_kl", "greedy_agreement", "token_count")
    MEAN_KL_FIELD_NUMBER: _ClassVar[int]
    GREEDY_AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    mean_kl: float
    greedy_agreement: float
    token_count: int
    def __init__(self, mean_kl: _Optional[float] = ..., greedy_agreement: _Optional[float] = ..., token_count: _Optional[int] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTokenizerResponse(_message.Message):
    __slots__ = ("tokenizer_json_chunk", "chat_template", "bos_token", "eos_token")
    TOKENIZER_JSON_CHUNK_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    BOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tokenizer_json_chunk: bytes
    chat_template: str
    bos_token: str
    eos_token: str
    def __init__(self, tokenizer_json_chunk: _Optional[bytes] = ..., chat_template: _Optional[str] = ..., bos_token: _Optional[str] = ..., eos_token: _Optional[str] = ...) -> None: ...

class OpenSequenceRequest(_message.Message):
    __slots__ = ("sequence_id", "token_ids", "prompt_length", "sampling", "rule", "encoding", "vocab_size", "lenience", "logprobs", "drafter", "encoder_token_ids", "structured_output", "draft_index", "target_vocabulary")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENIENCE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    ENCODER_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    TARGET_VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_length: int
    sampling: _sampling_pb2.SamplingOptions
    rule: _sampling_pb2.AcceptanceRule
    encoding: _sampling_pb2.DistributionEncoding
    vocab_size: int
    lenience: float
    logprobs: int
    drafter: _drafter_pb2.Drafter
    encoder_token_ids: _containers.RepeatedScalarFieldContainer[int]
    structured_output: _structured_output_pb2.StructuredOutput
    draft_index: int
    target_vocabulary: str
    def __init__(self, sequence_id: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., prompt_length: _Optional[int] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ..., rule: _Optional[_Union[_sampling_pb2.AcceptanceRule, str]] = ..., encoding: _Optional[_Union[_sampling_pb2.DistributionEncoding, str]] = ..., vocab_size: _Optional[int] = ..., lenience: _Optional[float] = ..., logprobs: _Optional[int] = ..., drafter: _Optional[_Union[_drafter_pb2.Drafter, str]] = ..., encoder_token_ids: _Optional[_Iterable[int]] = ..., structured_output: _Optional[_Union[_structured_output_pb2.StructuredOutput, _Mapping]] = ..., draft_index: _Optional[int] = ..., target_vocabulary: _Optional[str] = ...) -> None: ...

class OpenSequenceResponse(_message.Message):
    __slots__ = ("instance_id",)
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ...) -> None: ...

class RollbackSequenceRequest(_message.Message):
    __slots__ = ("sequence_id", "length")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    length: int
    def __init__(self, sequence_id: _Optional[str] = ..., length: _Optional[int] = ...) -> None: ...

class RollbackSequenceResponse(_message.Message):
    __slots__ = ("instance_id", "length")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    length: int
    def __init__(self, instance_id: _Optional[str] = ..., length: _Optional[int] = ...) -> None: ...

class ForkSequenceRequest(_message.Message):
    __slots__ = ("sequence_id", "forked_sequence_id", "length", "sampling")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    FORKED_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    forked_sequence_id: str
    length: int
    sampling: _sampling_pb2.SamplingOptions
    def __init__(self, sequence_id: _Optional[str] = ..., forked_sequence_id: _Optional[str] = ..., length: _Optional[int] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingOptions, _Mapping]] = ...) -> None: ...

class ForkSequenceResponse(_message.Message):
    __slots__ = ("instance_id", "length")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    length: int
    def __init__(self, instance_id: _Optional[str] = ..., length: _Optional[int] = ...) -> None: ...

class CloseSequenceRequest(_message.Message):
    __slots__ = ("sequence_id",)
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    sequence_id: str
    def __init__(self, sequence_id: _Optional[str] = ...) -> None: ...

class CloseSequenceResponse(_message.Message):
    __slots__ = ("instance_id",)
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ...) -> None: ...
