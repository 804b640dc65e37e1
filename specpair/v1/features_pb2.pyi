from specpair.v1 import proposal_pb2 as _proposal_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Features(_message.Message):
    __slots__ = ("layers", "states")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedScalarFieldContainer[int]
    states: _proposal_pb2.Tensor
    def __init__(self, layers: _Optional[_Iterable[int]] = ..., states: _Optional[_Union[_proposal_pb2.Tensor, _Mapping]] = ...) -> None: ...
