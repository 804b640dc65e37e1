"""The caches of sequences that have branches."""

from draft_service.ahead.ahead import WorkAhead
from specpair.engine.engine import Engine
from specpair.sequences.sequence import Sequence


class BranchingCaches:
    """Closes a sequence with its branches, however it is closed."""

    def __init__(self, engine: Engine, ahead: WorkAhead):
        self._engine = engine
        self._ahead = ahead

    def fork(self, source: Sequence, length: int) -> Sequence:
        return self._engine.fork(source, length)

    def close(self, sequence: Sequence) -> None:
        self._ahead.forget(sequence)
        self._engine.close(sequence)

    def expect_nothing(self, sequence: Sequence) -> None:
        self._engine.expect_nothing(sequence)
