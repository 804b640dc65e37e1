"""Encodes tensors as messages."""

from torch import Tensor

from specpair.v1.proposal_pb2 import TENSOR_TYPE_FLOAT32
from specpair.v1.proposal_pb2 import Tensor as TensorMessage
from specpair.wire.counts import FLOAT32


def encode_tensor(tensor: Tensor) -> TensorMessage:
    """Encodes a tensor of any shape as float32."""
    data = tensor.float().cpu().numpy().astype(FLOAT32, copy=False).tobytes()
    return TensorMessage(type=TENSOR_TYPE_FLOAT32, shape=tensor.shape, data=data)
