"""The simulated pair with a target that goes on to plain rounds by itself: their way passes beside its passes.

A plain round is known a round before, as the coordinator keeps it: docs/decisions/work-ahead.md, "The target goes on by
itself where its next call is known".
"""

from bench.simulated_machine import Machine
from bench.simulated_pair import LONGEST, Call, Output, Simulation
from coordinator.adaptive import PLAIN, Decision, OutputLength


class GoingOn(Simulation):
    """Its outputs promise the target their next round if that is plain."""

    def __init__(self, machine: Machine, seed: int = 0):
        super().__init__(machine, seed)
        self._promised: dict[Output, Decision] = {}
        """The next round of an output, if the target was told of it."""
        self._called: dict[Output, bool] = {}
        """Outputs whose call is at the target, and whether it promised the next one."""
        self._judged: dict[Output, tuple[int, float]] = {}
        """Rounds that are over before their call came: rows and time of their pass."""

    def _begin_round(self, output: Output) -> None:
        left = output.text.length - output.token_count - 1
        longest, is_ready = max(min(LONGEST, left), 0), output.fed is not None
        newest = output.policy.decide(longest, is_ready=is_ready)
        if newest.opens_draft and not output.is_opening:
            self._open(output)
        promised = self._promised.pop(output, None)
        if promised is not None and isinstance(output.policy, OutputLength):
            output.policy.use(promised)
            if newest.is_probe:
                output.policy.postpone_probe()
        decision = newest if promised is None else promised
        output.asked = decision.length if is_ready else 0
        promises = (decision.is_probe or not (output.asked or newest.length)) and left > output.asked
        if promises:
            self._promised[output] = PLAIN
        if isinstance(output.policy, OutputLength):
            output.policy.contribution.set_promised(is_promised=promises)
        self._foresee(output, decision.min_confidence)
        output.lengths.append(output.asked)
        output.drafted, output.draft_elapsed, output.draft_compute = 0, 0.0, 0.0
        self.after(
            self._noisy(self.machine.loop_time), lambda: self._call(output, promises, is_known=promised is not None)
        )

    def _call(self, output: Output, promises: bool, *, is_known: bool) -> None:
        """Makes the call of a round, which is known to the target if it was promised."""
        if is_known:
            self.after(self._half_a_call(), lambda: self._come(output, promises))
        else:
            self._called[output] = promises
            (self._call_draft if output.asked else self._call_target)(output)

    def _come(self, output: Output, promises: bool) -> None:
        self._called[output] = promises
        if (judged := self._judged.pop(output, None)) is not None:
            self._answer(output, *judged)
            self._pass()

    def _answer(self, output: Output, rows: int, compute: float) -> None:
        """Sends a verdict, and goes on if the next round is known."""
        if self._called.pop(output):
            self._verifying.append(Call(output, self.now * 1e-6))
            self._gathering.arrive(self._verifying[-1:])
        self.after(self._half_a_call(), lambda: self._commit(output, rows, compute))

    def _end_pass(self, batch: list[Output], prompts: list[Output], rows: int, start: float) -> None:
        compute = self.now - start
        if not prompts:
            self._gathering.add_pass(len(batch), rows, compute * 1e-6)
        ended = [Call(output, 0.0, is_followed=self._called.get(output, False)) for output in batch]
        self._gathering.leave(ended, self.now * 1e-6)
        for output in batch:
            if output in self._called:
                self._answer(output, rows, compute)
            else:
                self._judged[output] = rows, compute
        for output in prompts:
            self.after(self._half_a_call(), lambda output=output: self._begin(output))
        self._pass()
