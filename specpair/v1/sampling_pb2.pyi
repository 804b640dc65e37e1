from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class AcceptanceRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTANCE_RULE_UNSPECIFIED: _ClassVar[AcceptanceRule]
    ACCEPTANCE_RULE_TOKEN: _ClassVar[AcceptanceRule]
    ACCEPTANCE_RULE_BLOCK: _ClassVar[AcceptanceRule]

class DistributionEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISTRIBUTION_ENCODING_UNSPECIFIED: _ClassVar[DistributionEncoding]
    DISTRIBUTION_ENCODING_SPARSE: _ClassVar[DistributionEncoding]
    DISTRIBUTION_ENCODING_DENSE: _ClassVar[DistributionEncoding]
ACCEPTANCE_RULE_UNSPECIFIED: AcceptanceRule
ACCEPTANCE_RULE_TOKEN: AcceptanceRule
ACCEPTANCE_RULE_BLOCK: AcceptanceRule
DISTRIBUTION_ENCODING_UNSPECIFIED: DistributionEncoding
DISTRIBUTION_ENCODING_SPARSE: DistributionEncoding
DISTRIBUTION_ENCODING_DENSE: DistributionEncoding

class SamplingOptions(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...
