"""What keeps keys and values of open sequences."""

from typing import Protocol

from specpair.sequences.sequence import Sequence


class CacheOwner(Protocol):
    """What keeps keys and values of sequences: the engine."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        """A sequence of the first `length` tokens of an idle one."""
        ...

    def close(self, sequence: Sequence) -> None:
        """Frees what is kept of a sequence."""
        ...


class NoCaches:
    """For sequences that no model reads: there is nothing to keep."""

    def fork(self, source: Sequence, length: int) -> Sequence:
        return Sequence(source.tokens[:length])

    def close(self, sequence: Sequence) -> None:
        pass
