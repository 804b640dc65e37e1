"""Whether the rounds of an output are free of what it and others still propose, so that their times can be compared."""

from coordinator.adaptive.workload import Workload


class Settling:
    """Of one output, from call to call: one call may be for several rounds, and waits for the pass under way."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._was_plain = False
        """Whether no proposal was asked for in the round before."""
        self.is_over = False
        """Whether no output asked for a proposal when the present call was made, nor this one in the call before."""

    @property
    def is_alone(self) -> bool:
        """Whether there is no other output."""
        return self._workload.load.output_count == 1

    @property
    def is_beginning(self) -> bool:
        """Whether the present call is the first without a proposal, beside others."""
        return not self._was_plain and not self.is_alone

    def begin(self) -> None:
        """A call is made; what it proposes is in the load."""
        self.is_over = self.is_alone or (self._was_plain and self._workload.is_plain)

    def end(self, *, was_asked: bool) -> None:
        """A round has ended, in which a proposal was asked for or not."""
        self._was_plain = not was_asked
