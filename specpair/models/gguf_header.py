"""Reads the header of a GGUF file and checks it, before a library reads the file that trusts it.

Every length is checked against the end of the file, so that neither a file that was cut off nor a forged one costs
time or memory. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from specpair.errors import ModelRefusedError
from specpair.models.refusals import first_line

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ARCHITECTURE = "general.architecture"
ALIGNMENT = "general.alignment"
USUAL_ALIGNMENT = 32
MAX_DIMENSIONS = 4
STRING = 8
ARRAY = 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Format characters of `struct` by the type of a number."""


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor's place in the file."""

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    """Sizes as torch has them, rows first."""
    start: int
    """First byte in the file."""
    byte_count: int

    @property
    def weight_count(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class GgufHeader:
    """What a GGUF file says about itself."""

    metadata: dict[str, Any]
    """Numbers and strings by key; of an array its length."""
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> GgufHeader:
    """The header of a file that holds every byte that it names. Raises ModelRefusedError."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()
    except (_BrokenError, struct.error, ValueError, OSError) as error:
        problem = "it ends within its header" if isinstance(error, struct.error) else first_line(error)
        raise ModelRefusedError(f"{path} is no GGUF file that can be read: {problem}") from error


class _BrokenError(Exception):
    """What is wrong with the file."""


class _Reader:
    """Reads a header from its first byte on."""

    def __init__(self, data: mmap.mmap):
        self._data = data
        self._place = 0

    def header(self) -> GgufHeader:
        if self._bytes(len(MAGIC)) != MAGIC:
            raise _BrokenError("it does not begin with GGUF")
        version, tensor_count, entry_count = self._numbers("IQQ")
        if version not in VERSIONS:
            raise _BrokenError(f"it has version {version}; versions {VERSIONS[0]} and {VERSIONS[1]} are read")
        metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._string()
            if key in metadata:
                raise _BrokenError(f"it has {key[:64]!r} twice")
            metadata[key] = self._value(self._number("I"))
        return GgufHeader(metadata=metadata, tensors=self._tensors(tensor_count, metadata))

    def _tensors(self, count: int, metadata: dict[str, Any]) -> dict[str, StoredTensor]:
        alignment = metadata.get(ALIGNMENT, USUAL_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise _BrokenError(f"its alignment is {alignment!r}")
        tensors: dict[str, StoredTensor] = {}
        for _ in range(count):
            name = self._string()
            if name in tensors:
                raise _BrokenError(f"it has the tensor {name[:64]!r} twice")
            tensors[name] = self._tensor(name)
        first = -(-self._place // alignment) * alignment
        placed = {name: self._placed(name, tensor, first) for name, tensor in tensors.items()}
        if sum(tensor.byte_count for tensor in placed.values()) > len(self._data):
            raise _BrokenError("its tensors overlap")
        return placed

    def _tensor(self, name: str) -> StoredTensor:
        """The next tensor; its place is counted from the first byte of all tensors."""
        dimension_count = self._number("I")
        if not 1 <= dimension_count <= MAX_DIMENSIONS:
            raise _BrokenError(f"the tensor {name[:64]!r} has {dimension_count} dimensions")
        sizes = self._numbers(f"{dimension_count}Q")
        kind, start = self._numbers("IQ")
        if kind not in GGML_QUANT_SIZES:
            raise _BrokenError(f"the tensor {name[:64]!r} has the unknown type {kind}")
        type = GGMLQuantizationType(kind)
        weights, byte_count = GGML_QUANT_SIZES[type]
        if not prod(sizes) or sizes[0] % weights:
            raise _BrokenError(f"the tensor {name[:64]!r} has sizes {sizes}, which {type.name} cannot have")
        return StoredTensor(type=type, shape=sizes[::-1], start=start, byte_count=prod(sizes) // weights * byte_count)

    def _placed(self, name: str, tensor: StoredTensor, first: int) -> StoredTensor:
        """The tensor with its place in the file, whose tensors begin at `first`."""
        start = first + tensor.start
        if start + tensor.byte_count > len(self._data):
            raise _BrokenError(f"it ends within the tensor {name[:64]!r}")
        return StoredTensor(type=tensor.type, shape=tensor.shape, start=start, byte_count=tensor.byte_count)

    def _value(self, kind: int) -> Any:
        """A number, a string, or the length of an array."""
        if kind == STRING:
            return self._string()
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind != ARRAY:
            raise _BrokenError(f"its metadata has the unknown type {kind}")
        element, length = self._numbers("IQ")
        if element in NUMBERS:
            self._skip(struct.calcsize(NUMBERS[element]) * length)
        elif element == STRING:
            for _ in range(length):
                self._skip(self._number("Q"))
        else:
            raise _BrokenError(f"its metadata has an array of the type {element}")
        return length

    def _string(self) -> str:
        try:
            return self._bytes(self._number("Q")).decode()
        except UnicodeDecodeError as error:
            raise _BrokenError("it has a name or value that is no text") from error

    def _number(self, code: str) -> Any:
        return self._numbers(code)[0]

    def _numbers(self, codes: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{codes}", self._data, self._place)
        self._place += struct.calcsize(f"<{codes}")
        return found

    def _bytes(self, count: int) -> bytes:
        start = self._place
        self._skip(count)
        return self._data[start : self._place]

    def _skip(self, count: int) -> None:
        self._place += count
        if self._place > len(self._data):
            raise _BrokenError("it ends within its header")
