"""Converts proto messages to plain data and back.

Absent fields get their defaults here. Values outside their limits raise InvalidFieldError.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from google.protobuf.message import Message

from specpair.errors import InvalidFieldError
from specpair.model_info import (
    NOT_QUANTISED,
    Divergence,
    EncoderInfo,
    ModelInfo,
    PassCost,
    SamplingDefaults,
    VocabularyMethod,
    VocabularyTranslation,
)
from specpair.options import (
    TOKEN_LIST_LIMITS,
    Drafter,
    Encoding,
    Merge,
    Rule,
    SamplingOptions,
    SequenceOptions,
    WorkAhead,
    check_count,
)
from specpair.rpc.structured_output import structured_output_from_proto, structured_output_to_proto
from specpair.v1 import coordinator_service_pb2, drafter_pb2, sampling_pb2, sequence_service_pb2

_RULES: dict[int, Rule] = {
    sampling_pb2.ACCEPTANCE_RULE_UNSPECIFIED: Rule.BLOCK,
    sampling_pb2.ACCEPTANCE_RULE_TOKEN: Rule.TOKEN,
    sampling_pb2.ACCEPTANCE_RULE_BLOCK: Rule.BLOCK,
    sampling_pb2.ACCEPTANCE_RULE_COUPLED: Rule.COUPLED,
}
_RULE_NUMBERS = {
    Rule.TOKEN: sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    Rule.BLOCK: sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    Rule.COUPLED: sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
_ENCODINGS: dict[int, Encoding] = {
    sampling_pb2.DISTRIBUTION_ENCODING_UNSPECIFIED: Encoding.SPARSE,
    sampling_pb2.DISTRIBUTION_ENCODING_SPARSE: Encoding.SPARSE,
    sampling_pb2.DISTRIBUTION_ENCODING_DENSE: Encoding.DENSE,
}
_ENCODING_NUMBERS = {
    Encoding.SPARSE: sampling_pb2.DISTRIBUTION_ENCODING_SPARSE,
    Encoding.DENSE: sampling_pb2.DISTRIBUTION_ENCODING_DENSE,
}
_DRAFTER_NUMBERS = {
    Drafter.MODEL: drafter_pb2.DRAFTER_MODEL,
    Drafter.NGRAM: drafter_pb2.DRAFTER_NGRAM,
    Drafter.PROMPT_LOOKUP: drafter_pb2.DRAFTER_PROMPT_LOOKUP,
    Drafter.UNIGRAM: drafter_pb2.DRAFTER_UNIGRAM,
    Drafter.BIGRAM: drafter_pb2.DRAFTER_BIGRAM,
    Drafter.UNIFORM: drafter_pb2.DRAFTER_UNIFORM,
    Drafter.NGRAM_MODEL: drafter_pb2.DRAFTER_NGRAM_MODEL,
    Drafter.EAGLE: drafter_pb2.DRAFTER_EAGLE,
    Drafter.MEDUSA: drafter_pb2.DRAFTER_MEDUSA,
    Drafter.BLOCKWISE: drafter_pb2.DRAFTER_BLOCKWISE,
    Drafter.PASS: drafter_pb2.DRAFTER_PASS,
    Drafter.MTP: drafter_pb2.DRAFTER_MTP,
}
_DRAFTERS: dict[int, Drafter] = {number: drafter for drafter, number in _DRAFTER_NUMBERS.items()}
_WORK_AHEAD_NUMBERS = {
    WorkAhead.AUTO: coordinator_service_pb2.WORK_AHEAD_MODE_AUTO,
    WorkAhead.ON: coordinator_service_pb2.WORK_AHEAD_MODE_ON,
    WorkAhead.OFF: coordinator_service_pb2.WORK_AHEAD_MODE_OFF,
}
_WORK_AHEAD: dict[int, WorkAhead] = {number: mode for mode, number in _WORK_AHEAD_NUMBERS.items()}

_MERGE_NUMBERS: dict[Merge, coordinator_service_pb2.MergeMode] = {
    Merge.TREE: coordinator_service_pb2.MERGE_MODE_TREE,
    Merge.NONE: coordinator_service_pb2.MERGE_MODE_NONE,
}
_MERGES: dict[int, Merge] = {number: mode for mode, number in _MERGE_NUMBERS.items()}
_METHOD_NUMBERS = {
    VocabularyMethod.TLI: sequence_service_pb2.VOCABULARY_METHOD_TLI,
    VocabularyMethod.SLEM: sequence_service_pb2.VOCABULARY_METHOD_SLEM,
}
_METHODS: dict[int, VocabularyMethod] = {number: method for method, number in _METHOD_NUMBERS.items()}

_SINGLE_OPTIONS = tuple(f.name for f in fields(SamplingOptions) if f.name not in (*TOKEN_LIST_LIMITS, "logit_bias"))

MAX_SEQUENCE_ID_LENGTH = 128


def sampling_from_proto(message: sampling_pb2.SamplingOptions) -> SamplingOptions:
    """The options; absent fields get the defaults of SamplingOptions. Raises InvalidFieldError."""
    for name, limit in TOKEN_LIST_LIMITS.items():  # before the copy, because copying millions of tokens is slow
        check_count(f"sampling.{name}", len(getattr(message, name)), limit)
    given: dict[str, Any] = {name: getattr(message, name) for name in _SINGLE_OPTIONS if message.HasField(name)}
    given |= {name: tuple(getattr(message, name)) for name in TOKEN_LIST_LIMITS}
    return SamplingOptions(**given, logit_bias=tuple(message.logit_bias.items()))


def sampling_to_proto(options: SamplingOptions) -> sampling_pb2.SamplingOptions:
    """The message with every field set."""
    values: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(SamplingOptions)}
    return sampling_pb2.SamplingOptions(**{**values, "logit_bias": dict(options.logit_bias)})


def sampling_defaults_from_proto(message: sampling_pb2.SamplingOptions) -> SamplingDefaults:
    """The options that a model has defaults for, as far as they are set. Raises InvalidFieldError."""
    names = [field.name for field in fields(SamplingDefaults)]
    return SamplingDefaults(**{name: getattr(message, name) for name in names if message.HasField(name)})


def sampling_defaults_to_proto(defaults: SamplingDefaults) -> sampling_pb2.SamplingOptions | None:
    """The message; None if nothing is set."""
    return sampling_pb2.SamplingOptions(**defaults.given) if defaults.given else None


def drawing_to_proto(options: SamplingOptions) -> sampling_pb2.SamplingOptions:
    """The options that a model may have defaults for, all set."""
    return sampling_pb2.SamplingOptions(
        **{field.name: getattr(options, field.name) for field in fields(SamplingDefaults)}
    )


def sequence_options_from_proto(message: sequence_service_pb2.OpenSequenceRequest) -> SequenceOptions:
    """The options that the request sets for the sequence. Raises InvalidFieldError."""
    optional = ("vocab_size", "lenience", "logprobs")
    return SequenceOptions(
        sampling=sampling_from_proto(message.sampling),
        rule=rule_from_proto(message.rule),
        encoding=encoding_from_proto(message.encoding),
        drafter=drafter_from_proto(message.drafter),
        structured_output=structured_output_from_proto(message.structured_output),
        encoder_ids=tuple(message.encoder_token_ids),
        draft_index=message.draft_index,
        target_vocabulary=check_target_vocabulary(message.target_vocabulary),
        **{name: getattr(message, name) for name in optional if message.HasField(name)},
    )


def open_request(
    sequence_id: str, token_ids: Sequence[int], prompt_length: int, options: SequenceOptions
) -> sequence_service_pb2.OpenSequenceRequest:
    """The message with every field set."""
    return sequence_service_pb2.OpenSequenceRequest(
        sequence_id=sequence_id,
        token_ids=token_ids,
        prompt_length=prompt_length,
        sampling=sampling_to_proto(options.sampling),
        rule=rule_to_proto(options.rule),
        encoding=encoding_to_proto(options.encoding),
        vocab_size=options.vocab_size,
        lenience=options.lenience,
        logprobs=options.logprobs,
        drafter=drafter_to_proto(options.drafter),
        structured_output=structured_output_to_proto(options.structured_output),
        encoder_token_ids=options.encoder_ids,
        draft_index=options.draft_index,
        target_vocabulary=options.target_vocabulary,
    )


def rule_from_proto(number: int) -> Rule:
    """The rule; block if unspecified. Raises InvalidFieldError for an unknown number."""
    try:
        return _RULES[number]
    except KeyError:
        raise InvalidFieldError("rule", f"{number} is not an AcceptanceRule") from None


def rule_to_proto(rule: Rule) -> sampling_pb2.AcceptanceRule:
    return _RULE_NUMBERS[rule]


def encoding_from_proto(number: int) -> Encoding:
    """The encoding; sparse if unspecified. Raises InvalidFieldError for an unknown number."""
    try:
        return _ENCODINGS[number]
    except KeyError:
        raise InvalidFieldError("encoding", f"{number} is not a DistributionEncoding") from None


def encoding_to_proto(encoding: Encoding) -> sampling_pb2.DistributionEncoding:
    return _ENCODING_NUMBERS[encoding]


def drafter_from_proto(number: int) -> Drafter | None:
    """The drafter; None if unspecified. Raises InvalidFieldError for an unknown number."""
    if number == drafter_pb2.DRAFTER_UNSPECIFIED:
        return None
    try:
        return _DRAFTERS[number]
    except KeyError:
        raise InvalidFieldError("drafter", f"{number} is not a Drafter") from None


def drafter_to_proto(drafter: Drafter | None) -> drafter_pb2.Drafter:
    return drafter_pb2.DRAFTER_UNSPECIFIED if drafter is None else _DRAFTER_NUMBERS[drafter]


def work_ahead_from_proto(number: int) -> WorkAhead | None:
    """The mode; None if unspecified. Raises InvalidFieldError for an unknown number."""
    if number == coordinator_service_pb2.WORK_AHEAD_MODE_UNSPECIFIED:
        return None
    try:
        return _WORK_AHEAD[number]
    except KeyError:
        raise InvalidFieldError("work_ahead", f"{number} is not a WorkAheadMode") from None


def work_ahead_to_proto(mode: WorkAhead | None) -> coordinator_service_pb2.WorkAheadMode:
    if mode is None:
        return coordinator_service_pb2.WORK_AHEAD_MODE_UNSPECIFIED
    return _WORK_AHEAD_NUMBERS[mode]


def merge_from_proto(number: int) -> Merge | None:
    """The mode; None if unspecified. Raises InvalidFieldError for an unknown number."""
    if number == coordinator_service_pb2.MERGE_MODE_UNSPECIFIED:
        return None
    try:
        return _MERGES[number]
    except KeyError:
        raise InvalidFieldError("merge", f"{number} is not a MergeMode") from None


def merge_to_proto(mode: Merge | None) -> coordinator_service_pb2.MergeMode:
    return coordinator_service_pb2.MERGE_MODE_UNSPECIFIED if mode is None else _MERGE_NUMBERS[mode]


def model_info_from_proto(message: sequence_service_pb2.GetModelInfoResponse) -> ModelInfo:
    """The facts of a service. Raises InvalidFieldError for sampling defaults outside their limits."""
    values: dict[str, Any] = {field.name: getattr(message, field.name) for field in fields(ModelInfo)}
    values["eos_token_ids"] = tuple(message.eos_token_ids)
    values["drafters"] = tuple(_DRAFTERS[number] for number in message.drafters if number in _DRAFTERS)
    values["tensor_parallel_size"] = message.tensor_parallel_size or 1
    values["quantization"] = message.quantization or NOT_QUANTISED
    values["encoder_decoder"] = _encoder(message.encoder_decoder) if message.HasField("encoder_decoder") else None
    values["divergence"] = _divergence(message.divergence) if message.HasField("divergence") else None
    values["pass_costs"] = tuple(
        PassCost(token_count=cost.token_count, seconds=cost.seconds) for cost in message.pass_costs
    )
    values["translations"] = tuple(map(translation_from_proto, message.translations))
    values["sampling_defaults"] = sampling_defaults_from_proto(message.sampling_defaults)
    return ModelInfo(**values)


def _encoder(message: sequence_service_pb2.EncoderDecoder) -> EncoderInfo:
    return EncoderInfo(**{field.name: getattr(message, field.name) for field in fields(EncoderInfo)})


def translation_from_proto(message: sequence_service_pb2.VocabularyTranslation) -> VocabularyTranslation:
    """The translation; a method of a later version counts as TLI."""
    values = {field.name: getattr(message, field.name) for field in fields(VocabularyTranslation)}
    methods = {name: _METHODS.get(values[name], VocabularyMethod.TLI) for name in ("method", "greedy_method")}
    return VocabularyTranslation(**{**values, **methods})


def translation_to_proto(translation: VocabularyTranslation) -> sequence_service_pb2.VocabularyTranslation:
    values = asdict(translation)
    methods = {name: _METHOD_NUMBERS[values[name]] for name in ("method", "greedy_method")}
    return sequence_service_pb2.VocabularyTranslation(**{**values, **methods})


def _divergence(message: sequence_service_pb2.Divergence) -> Divergence:
    return Divergence(**{field.name: getattr(message, field.name) for field in fields(Divergence)})


def model_info_to_proto(info: ModelInfo) -> sequence_service_pb2.GetModelInfoResponse:
    values = asdict(info)
    values["drafters"] = [drafter_to_proto(drafter) for drafter in info.drafters]
    values["translations"] = [translation_to_proto(translation) for translation in info.translations]
    values["sampling_defaults"] = sampling_defaults_to_proto(info.sampling_defaults)
    return sequence_service_pb2.GetModelInfoResponse(**values)


def body_of(request: Message) -> bytes:
    """A digest that identifies a repeated call: 32 bytes, while the message may have megabytes."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def check_target_vocabulary(value: str) -> str:
    """Returns the name of a vocabulary. Raises InvalidFieldError unless it is empty or 64 hexadecimal digits."""
    if value and not re.fullmatch("[0-9a-f]{64}", value):
        raise InvalidFieldError("target_vocabulary", "must be empty or 64 hexadecimal digits", limit=64)
    return value


def check_sequence_id(field: str, value: str) -> str:
    """Returns the id. Raises InvalidFieldError unless it is 1 to 128 printable characters."""
    if not 1 <= len(value) <= MAX_SEQUENCE_ID_LENGTH or not value.isprintable():
        raise InvalidFieldError(
            field, f"must be 1 to {MAX_SEQUENCE_ID_LENGTH} printable characters", limit=MAX_SEQUENCE_ID_LENGTH
        )
    return value
