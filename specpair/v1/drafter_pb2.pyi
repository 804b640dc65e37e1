from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Drafter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFTER_UNSPECIFIED: _ClassVar[Drafter]
    DRAFTER_MODEL: _ClassVar[Drafter]
    DRAFTER_NGRAM: _ClassVar[Drafter]
    DRAFTER_PROMPT_LOOKUP: _ClassVar[Drafter]
    DRAFTER_UNIGRAM: _ClassVar[Drafter]
    DRAFTER_BIGRAM: _ClassVar[Drafter]
    DRAFTER_UNIFORM: _ClassVar[Drafter]
    DRAFTER_NGRAM_MODEL: _ClassVar[Drafter]
    DRAFTER_EAGLE: _ClassVar[Drafter]
    DRAFTER_MEDUSA: _ClassVar[Drafter]
    DRAFTER_BLOCKWISE: _ClassVar[Drafter]
    DRAFTER_PASS: _ClassVar[Drafter]
    DRAFTER_MTP: _ClassVar[Drafter]
DRAFTER_UNSPECIFIED: Drafter
DRAFTER_MODEL: Drafter
DRAFTER_NGRAM: Drafter
DRAFTER_PROMPT_LOOKUP: Drafter
DRAFTER_UNIGRAM: Drafter
DRAFTER_BIGRAM: Drafter
DRAFTER_UNIFORM: Drafter
DRAFTER_NGRAM_MODEL: Drafter
DRAFTER_EAGLE: Drafter
DRAFTER_MEDUSA: Drafter
DRAFTER_BLOCKWISE: Drafter
DRAFTER_PASS: Drafter
DRAFTER_MTP: Drafter
