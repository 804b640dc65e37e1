"""The branches of one sequence for one step."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from draft_service.ahead.branch import Branch
from draft_service.ahead.odds import Odds
from draft_service.ahead.outcomes import Guess, Outcome, best, guesses_at
from draft_service.drafters.model import ProposeWork
from draft_service.proposal import AheadOrder, Deliver, Drafted, PreparedBlock, ProposeCall
from specpair.engine.work import Work
from specpair.errors import ShuttingDownError
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.outlook import Outlook, of_counts, of_probabilities


class BranchEngine(Protocol):
    """The part of the engine that work ahead uses."""

    def submit(self, work: Work) -> "asyncio.Future[None]":
        """Runs the work; cancelling the future drops it."""
        ...

    def discard(self, sequences: list[Sequence]) -> None:
        """Frees the cache of sequences whose works are done or cancelled."""
        ...


class Generation:
    """Prepares a step for the likely outcomes of the step before. Runs on the event loop.

    Branches are forks: the sequence itself is not touched and stays ready for any call.
    """

    def __init__(
        self,
        engine: BranchEngine,
        held: HeldSequence[Drafted],
        call: ProposeCall,
        drafted: Drafted,
        order: AheadOrder,
        deliver: Deliver,
        row_count: int,
    ):
        """`call` was answered with `drafted`, which has tokens; at most `row_count` outcomes are prepared."""
        self.step = call.step + 1
        self.base_length = held.length
        self.deliver = deliver
        self.is_live = True
        self.branches: dict[Outcome, Branch] = {}
        self._engine = engine
        self._held = held
        self._sequence_id = call.sequence_id
        self._drafted = drafted
        self._order = order
        self._row_count = row_count
        self._odds = Odds()
        self._peek: ProposeWork | None = None
        self._stops = frozenset(held.options.sampling.stop_token_ids)

    def begin(self) -> None:
        """Submits the branches of corrections, and a look at the row after the whole block for the others."""
        tokens, counts = self._drafted.tokens, self._odds.of_counts(len(self._drafted.tokens))
        guesses: list[Guess] = []
        for n, outlook in enumerate(outlooks_of(self._drafted)[: len(tokens)]):
            chances = [counts[n] * chance for chance in self._odds.of_ranks(is_bonus=False)]
            guesses += guesses_at(n, outlook, tokens[n], chances, self._stops)
            if tokens[n] in self._stops:  # nothing follows it
                break
        else:
            whole = [counts[-1] * chance for chance in self._odds.of_ranks(is_bonus=True)]
            guesses += [Guess(Outcome(len(tokens), -1), rank, chance) for rank, chance in enumerate(whole)]
        chosen = best(guesses, self._row_count)
        bonus = [guess.probability for guess in chosen if guess.outcome.accepted_count == len(tokens)]
        if bonus:
            self._begin_peek(bonus)
        for guess in chosen:
            if guess.outcome.accepted_count < len(tokens):
                self._begin_branch(guess.outcome, self._held.cached)

    def match(self, call: ProposeCall) -> Branch | None:
        """The branch of the outcome that a call names, unless it failed."""
        tokens, accepted_count = self._drafted.tokens, len(call.appended) - 1
        if call.step != self.step or call.base_length != self.base_length or accepted_count < 0:
            return None
        if call.appended[:-1] != tokens[:accepted_count]:
            return None
        branch = self.branches.get(Outcome(accepted_count, call.appended[-1]))
        if branch is None or branch.has_failed:
            return None
        is_same = call.count == branch.work.count and call.min_confidence == branch.work.min_confidence
        return branch if is_same or call.has_proposal else None

    def end(self, kept: Branch | None = None) -> None:
        """Drops all branches, but the `kept` one."""
        self.is_live = False
        dropped = [branch for branch in self.branches.values() if branch is not kept]
        works = [branch.work for branch in dropped] + ([self._peek] if self._peek else [])
        self.branches, self._peek = {}, None
        for work in works:
            work.future.cancel()
        if works:
            self._engine.discard([work.sequence for work in works])

    def deliver_again(self, deliver: Deliver) -> None:
        """Sends what is ready once more, to a caller that may have lost it."""
        self.deliver = deliver
        for branch in self.branches.values():
            if branch.is_ready:
                self._deliver(branch)

    def _begin_peek(self, chances: list[float]) -> None:
        """Looks at the row after the whole block: a work of one token, of which only the row is used."""
        tokens = self._held.cached.tokens
        work = self._work(Sequence(list(tokens), valid_length=len(tokens), is_branch=True), self._held.cached, 1, 0.0)
        self._peek = work
        self._submit(work, lambda: self._begin_bonus_branches(work, chances))

    def _begin_bonus_branches(self, peek: ProposeWork, chances: list[float]) -> None:
        accepted_count = len(self._drafted.tokens)
        outlook = outlooks_of(peek.drafted())[0]
        for guess in guesses_at(accepted_count, outlook, None, chances, self._stops):
            self._begin_branch(guess.outcome, peek.sequence)

    def _begin_branch(self, outcome: Outcome, parent: Sequence) -> None:
        length = self.base_length + outcome.accepted_count
        count = min(self._order.count, self._order.max_length - length - 1)
        if count < 1:
            return
        tokens = [*self._held.cached.tokens[:length], outcome.next_token_id]
        sequence = Sequence(tokens, valid_length=length, is_branch=True)
        work = self._work(sequence, parent, count, self._order.min_confidence)
        branch = Branch(outcome=outcome, work=work, future=self._submit(work, lambda: self._deliver(branch)))
        self.branches[outcome] = branch

    def _work(self, sequence: Sequence, parent: Sequence, count: int, min_confidence: float) -> ProposeWork:
        return ProposeWork(
            sequence=sequence,
            row_count=1,
            held=self._held.branch(sequence),
            step=self.step,
            count=count,
            min_confidence=min_confidence,
            looks=True,
            parent=parent,
            room=count + 1,
            is_background=True,
        )

    def _submit(self, work: ProposeWork, succeeded: Callable[[], None]) -> "asyncio.Future[None]":
        future = self._engine.submit(work)

        def settled(future: "asyncio.Future[None]") -> None:
            if not future.cancelled() and future.exception() is None and self.is_live:
                with suppress(ShuttingDownError):
                    succeeded()

        future.add_done_callback(settled)
        return future

    def _deliver(self, branch: Branch) -> None:
        self.deliver(
            PreparedBlock(
                sequence_id=self._sequence_id,
                step=self.step,
                base_length=self.base_length,
                accepted_count=branch.outcome.accepted_count,
                next_token_id=branch.outcome.next_token_id,
                drafted=branch.work.drafted(),
                is_current=lambda: self.is_live,
            )
        )


def outlooks_of(drafted: Drafted) -> list[Outlook]:
    """The outlooks of the rows of a proposal: those that were noted, or what the rows that are sent say."""
    if drafted.outlooks:
        return list(drafted.outlooks)
    return [of_probabilities(row) for row in drafted.dense] or [of_counts(row) for row in drafted.counts]
