from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_TYPE_UNSPECIFIED: _ClassVar[TensorType]
    TENSOR_TYPE_FLOAT32: _ClassVar[TensorType]
TENSOR_TYPE_UNSPECIFIED: TensorType
TENSOR_TYPE_FLOAT32: TensorType

class Proposal(_message.Message):
    __slots__ = ("token_ids", "distributions", "parent_indices", "draw_nodes", "draw_rows", "draws_without_replacement")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    PARENT_INDICES_FIELD_NUMBER: _ClassVar[int]
    DRAW_NODES_FIELD_NUMBER: _ClassVar[int]
    DRAW_ROWS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_WITHOUT_REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    distributions: Distributions
    parent_indices: _containers.RepeatedScalarFieldContainer[int]
    draw_nodes: _containers.RepeatedScalarFieldContainer[int]
    draw_rows: _containers.RepeatedScalarFieldContainer[int]
    draws_without_replacement: bool
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., distributions: _Optional[_Union[Distributions, _Mapping]] = ..., parent_indices: _Optional[_Iterable[int]] = ..., draw_nodes: _Optional[_Iterable[int]] = ..., draw_rows: _Optional[_Iterable[int]] = ..., draws_without_replacement: _Optional[bool] = ...) -> None: ...

class Distributions(_message.Message):
    __slots__ = ("sparse", "dense", "one_hot", "kept", "withheld")
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    ONE_HOT_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    sparse: SparseDistributions
    dense: DenseDistributions
    one_hot: OneHotDistributions
    kept: KeptDistributions
    withheld: WithheldDistributions
    def __init__(self, sparse: _Optional[_Union[SparseDistributions, _Mapping]] = ..., dense: _Optional[_Union[DenseDistributions, _Mapping]] = ..., one_hot: _Optional[_Union[OneHotDistributions, _Mapping]] = ..., kept: _Optional[_Union[KeptDistributions, _Mapping]] = ..., withheld: _Optional[_Union[WithheldDistributions, _Mapping]] = ...) -> None: ...

class SparseDistributions(_message.Message):
    __slots__ = ("support_sizes", "token_ids", "counts", "total_log2")
    SUPPORT_SIZES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_LOG2_FIELD_NUMBER: _ClassVar[int]
    support_sizes: _containers.RepeatedScalarFieldContainer[int]
    token_ids: bytes
    counts: bytes
    total_log2: int
    def __init__(self, support_sizes: _Optional[_Iterable[int]] = ..., token_ids: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., total_log2: _Optional[int] = ...) -> None: ...

class DenseDistributions(_message.Message):
    __slots__ = ("probabilities",)
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    probabilities: Tensor
    def __init__(self, probabilities: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class OneHotDistributions(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeptDistributions(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class WithheldDistributions(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("type", "shape", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: TensorType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, type: _Optional[_Union[TensorType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...
