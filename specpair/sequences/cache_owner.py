"""The interface of what keeps the KV cache of open sequences."""

from typing import Protocol

from specpair.sequences.sequence import Sequence


class CacheOwner(Protocol):
    """Keeps the KV cache of sequences: the engine."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence with the first `length` tokens of an idle one."""
        ...

    def close(self, sequence: Sequence) -> None:
        """Frees the cache of a sequence."""
        ...

    def expect_nothing(self, sequence: Sequence) -> None:
        """The call of the sequence for which a pass may be waiting does not come."""
        ...


class NoCaches:
    """For sequences without a model: there is no cache."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        return Sequence(source.tokens[:length], encoder_input=source.encoder_input)

    def close(self, sequence: Sequence) -> None:
        pass

    def expect_nothing(self, sequence: Sequence) -> None:
        pass
