from dataclasses import fields, replace
from typing import Any

import pytest

from specpair.errors import InvalidFieldError
from specpair.model_info import NO_DEFAULTS, EncoderInfo, ModelInfo, SamplingDefaults
from specpair.options import Encoding, Rule, SamplingOptions
from specpair.rpc.messages import (
    encoding_from_proto,
    encoding_to_proto,
    model_info_from_proto,
    model_info_to_proto,
    rule_from_proto,
    rule_to_proto,
    sampling_from_proto,
    sampling_to_proto,
)
from specpair.v1 import sampling_pb2, sequence_service_pb2

INFO = ModelInfo(
    instance_id="i",
    model_name="m",
    architecture="LlamaForCausalLM",
    parameter_count=10**12,
    vocab_size=4096,
    max_model_len=512,
    max_num_speculative_tokens=8,
    max_num_seqs=4,
    dtype="float32",
    device="cpu",
    cache="paged",
    block_size=16,
    block_count=100,
    free_block_count=99,
    sequence_count=1,
    eos_token_ids=(2, 7),
    deterministic=True,
    encoder_decoder=EncoderInfo(max_encoder_len=128, decoder_start_token_id=3),
    sampling_defaults=SamplingDefaults(temperature=0.5, top_k=0),
)


def test_absent_sampling_fields_take_their_defaults() -> None:
    assert sampling_from_proto(sampling_pb2.SamplingOptions()) == SamplingOptions()


def test_zero_is_a_value_and_not_an_absence() -> None:
    options = sampling_from_proto(sampling_pb2.SamplingOptions(temperature=0.0, seed=0))
    assert options.is_greedy
    assert options.top_p == 1.0


def test_sampling_travels_with_every_field_set() -> None:
    options = SamplingOptions(
        temperature=0.5,
        top_k=40,
        top_p=0.75,
        min_p=0.25,
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.5,
        logit_bias=((3, 1.0), (7, -2.0)),
        allowed_token_ids=(1, 2, 3),
        banned_token_ids=(4,),
        min_tokens=5,
        stop_token_ids=(6,),
        seed=2**64 - 1,
    )
    message = sampling_to_proto(options)
    assert len(message.ListFields()) == len(fields(SamplingOptions))
    assert sampling_from_proto(message) == options


def test_greedy_sampling_still_sets_every_field() -> None:
    message = sampling_to_proto(SamplingOptions(temperature=0.0))
    assert message.HasField("temperature")
    assert sampling_from_proto(message) == SamplingOptions(temperature=0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", float("inf")),
    ],
)
def test_sampling_out_of_range_names_the_field(field: str, value: float) -> None:
    message = sampling_pb2.SamplingOptions()
    setattr(message, field, value)
    with pytest.raises(InvalidFieldError, match=field):
        sampling_from_proto(message)


def test_rules_and_encodings_travel() -> None:
    assert [rule_from_proto(rule_to_proto(rule)) for rule in Rule] == list(Rule)
    assert [encoding_from_proto(encoding_to_proto(encoding)) for encoding in Encoding] == list(Encoding)


def test_every_number_of_the_contract_is_understood() -> None:
    for number in sampling_pb2.AcceptanceRule.values():
        rule_from_proto(number)
    for number in sampling_pb2.DistributionEncoding.values():
        encoding_from_proto(number)


def test_unspecified_is_the_default() -> None:
    assert rule_from_proto(sampling_pb2.ACCEPTANCE_RULE_UNSPECIFIED) is Rule.BLOCK
    assert encoding_from_proto(sampling_pb2.DISTRIBUTION_ENCODING_UNSPECIFIED) is Encoding.SPARSE


@pytest.mark.parametrize(("decode", "field"), [(rule_from_proto, "rule"), (encoding_from_proto, "encoding")])
def test_unknown_enum_number_is_refused(decode, field: str) -> None:
    with pytest.raises(InvalidFieldError, match="99") as caught:
        decode(99)
    assert caught.value.metadata["field"] == field


def test_model_info_has_the_fields_of_the_contract() -> None:
    contract = sequence_service_pb2.GetModelInfoResponse.DESCRIPTOR.fields_by_name
    assert {field.name for field in fields(ModelInfo)} == set(contract)


def test_model_info_travels() -> None:
    data = model_info_to_proto(INFO).SerializeToString()
    assert model_info_from_proto(sequence_service_pb2.GetModelInfoResponse.FromString(data)) == INFO
    older = sequence_service_pb2.GetModelInfoResponse()
    assert model_info_from_proto(older).sampling_defaults == NO_DEFAULTS
    older.sampling_defaults.top_p = 2.0
    with pytest.raises(InvalidFieldError, match="top_p"):
        model_info_from_proto(older)
    assert not model_info_to_proto(replace(INFO, sampling_defaults=NO_DEFAULTS)).HasField("sampling_defaults")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("logit_bias", {"logit_bias": dict.fromkeys(range(1025), 1.0)}),
        ("logit_bias", {"logit_bias": {3: 101.0}}),
        ("allowed_token_ids", {"allowed_token_ids": range(16385)}),
        ("allowed_token_ids", {"allowed_token_ids": [1, 2], "banned_token_ids": [1, 2]}),
        ("allowed_token_ids", {"allowed_token_ids": [1], "stop_token_ids": [1], "min_tokens": 1}),
        ("banned_token_ids", {"banned_token_ids": range(16385)}),
        ("stop_token_ids", {"stop_token_ids": range(129)}),
    ],
)
def test_lists_out_of_bounds_name_the_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidFieldError, match=f"sampling.{field}"):
        sampling_from_proto(sampling_pb2.SamplingOptions(**changes))
