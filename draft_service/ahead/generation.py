"""The branches of one sequence for one step."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from draft_service.ahead.branch import Branch
from draft_service.ahead.odds import Odds, Row
from draft_service.ahead.outcomes import Guess, Outcome, best
from draft_service.drafters.model import ProposeWork
from draft_service.proposal import AheadOrder, Deliver, Drafted, PreparedBlock, ProposeCall
from specpair.engine.work import Work
from specpair.errors import ShuttingDownError
from specpair.options import Encoding
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from specpair.speculation.outlook import Outlook
from specpair.speculation.own_token import foresee, foresee_dense

UNKNOWN = -1
"""Stands for the likeliest bonus token before the row after the block is known; lower numbers for those after it."""


class BranchEngine(Protocol):
    """The part of the engine that work ahead uses."""

    def submit(self, work: Work) -> "asyncio.Future[None]":
        """Runs the work; cancelling the future drops it."""
        ...

    def bring_forward(self, work: Work) -> None:
        """From now on somebody waits for the work, and its sequence is an open one."""
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
        odds: Odds,
        held: HeldSequence[Drafted],
        call: ProposeCall,
        drafted: Drafted,
        order: AheadOrder,
        deliver: Deliver,
        least_chance: float = 0.0,
    ):
        """`call` was answered with `drafted`, which has no tokens in a round without a proposal. Outcomes that are less
        likely than `least_chance` are left out."""
        self.step = call.step + 1
        self.branches: dict[Outcome, Branch] = {}
        self.is_live = True
        self.row_count = 0
        """Most branches that it may come to have."""
        self._base_length = held.length
        self._engine = engine
        self._odds = odds
        self._held = held
        self._sequence_id = call.sequence_id
        self._proposed = drafted.tokens
        self._seed = held.options.sampling.seed
        outlooks, shares = self._outlooks_of(drafted), shares_of(drafted)
        self._rows = [Row(*row) for row in zip(drafted.tokens, outlooks, shares, strict=False)]
        beyond = outlooks[len(drafted.tokens) :]
        self._bonus = Row(None, beyond[0]) if beyond else None
        """The row after the whole block, once it is known."""
        self._order = order
        self._deliver_block = deliver
        self._least_chance = least_chance
        self._peek: ProposeWork | None = None

    def begin(self) -> None:
        """Submits the branches after corrections and those after the whole block. If the row after it is not known,
        they begin with it where they can; else a look at it comes first."""
        counts = self._odds.counts(self._rows)
        least = min(self._least_chance, max(counts))
        most = self._order.max_outcomes
        chosen = self._best(self._guesses(counts, least), most) or self._best(self._guesses(counts, 0.0), most)
        self.row_count = len(chosen)
        unknown = [guess for guess in chosen if guess.outcome.next_token_id <= UNKNOWN]
        if self._can_begin_ranked:
            for guess in unknown:
                self._begin_ranked(guess)
        elif unknown:
            self._begin_peek(len(unknown), sum(guess.probability for guess in unknown), counts[-1])
        for guess in chosen:
            if guess.outcome.next_token_id > UNKNOWN:
                self._begin_branch(guess, self._held.cached)

    @property
    def _can_begin_ranked(self) -> bool:
        """Whether a proposal can be drawn together with the token before it. Not where it may end by itself, since the
        draft would have to be sure of that token, nor beside dense rows, nor by the race of a row that is certain."""
        options = self._held.options
        races = options.encoding is Encoding.SPARSE and not options.sampling.is_greedy
        return not self._order.min_confidence and (options.ignores_proposals or races)

    def outcome_of(self, call: ProposeCall) -> Outcome | None:
        """What the target made of the proposal, as the next call says it; None if it is another call."""
        accepted_count = len(call.appended) - 1
        if call.step != self.step or call.base_length != self._base_length or accepted_count < 0:
            return None
        if call.appended[:-1] != self._proposed[:accepted_count]:
            return None
        return Outcome(accepted_count, call.appended[-1])

    def branch_of(self, outcome: Outcome) -> Branch | None:
        """The branch of an outcome, also of one that is under way and has drawn its token alone."""
        if (branch := self.branches.get(outcome)) is not None or outcome.accepted_count < len(self._proposed):
            return branch
        token = [outcome.next_token_id]
        ranked = (branch for branch in self.branches.values() if branch.has_drawn_outcome)
        return next((branch for branch in ranked if branch.work.tokens[:1] == token), None)

    def match(self, outcome: Outcome, call: ProposeCall) -> Branch | None:
        """The branch of an outcome, unless it failed, has not begun, or prepares something else than the call asks
        for."""
        branch = self.branch_of(outcome)
        if branch is None or branch.has_failed or not branch.has_begun:
            return None
        is_same = call.count == branch.count and call.min_confidence == branch.work.min_confidence
        return branch if is_same or call.has_proposal else None

    def learn(self, outcome: Outcome) -> None:
        """Learns from the outcome."""
        if len(self._rows) == len(self._proposed):
            self._odds.learn(self._rows, self._bonus, outcome)

    def end(self, kept: Branch | None = None) -> None:
        """Drops all branches, but the `kept` one."""
        self.is_live = False
        dropped = [branch for branch in self.branches.values() if branch is not kept]
        works = {branch.work for branch in dropped} | ({self._peek} if self._peek else set())
        if kept is not None:
            works.discard(kept.work)
        for work in works:
            work.future.cancel()
        if works:
            self._engine.discard([work.sequence for work in works])

    def deliver_again(self, deliver: Deliver) -> None:
        """Sends what is ready once more, if it goes to another place: on a new stream the caller may have lost it."""
        if deliver == self._deliver_block:
            return
        self._deliver_block = deliver
        for branch in self.branches.values():
            if branch.is_ready and branch.outcome.next_token_id > UNKNOWN:
                self._deliver(branch)

    def _outlooks_of(self, drafted: Drafted) -> list[Outlook]:
        """The likely outcomes of the rows of a proposal, and of the row after it if it was looked at: as they were
        noted, or by the noise that draws the target's own token in the step that is guessed at."""
        if drafted.outlooks:
            return list(drafted.outlooks)
        step = self.step - 1
        dense = foresee_dense(drafted.dense, self._seed, step)
        return dense or foresee((*drafted.counts, *drafted.beyond), self._seed, step)

    def _ends_with(self, token: int | None) -> bool:
        """Whether the output ends with the token, so that nothing follows it."""
        return token in self._held.options.sampling.stop_token_ids

    def _guesses(self, counts: list[float], least: float) -> list[Guess]:
        """The guesses for accepted counts of these chances [K + 1] that are not less likely than `least`."""
        guesses: list[Guess] = []
        for accepted_count, row in enumerate(self._rows):
            if counts[accepted_count] >= least:  # else none of its guesses is likely enough
                guesses += self._odds.guesses(accepted_count, row, counts[accepted_count], least)
            if self._ends_with(row.drawn):
                break
        else:
            guesses += self._bonus_guesses(counts[-1], least)
        return guesses

    def _best(self, guesses: list[Guess], count: int) -> list[Guess]:
        return best(guesses, count, self._held.options.sampling.stop_token_ids, self._least_chance)

    def _bonus_guesses(self, whole_chance: float, least: float) -> list[Guess]:
        """The guesses at the token after the whole block, which is accepted with this chance."""
        whole = len(self._proposed)
        if self._bonus is not None:
            return self._odds.guesses(whole, self._bonus, whole_chance, least)
        chances = self._odds.bonus_chances(whole_chance)
        return [Guess(Outcome(whole, UNKNOWN - rank), chance) for rank, chance in enumerate(chances)]

    def _begin_peek(self, bonus_count: int, chance: float, whole_chance: float) -> None:
        """Looks at the row after the whole block: a work of one token, of which only the row is used. `chance` is that
        of its branches, `whole_chance` that all tokens are accepted."""
        tokens = list(self._held.cached.tokens)
        peek = self._work(self._branch_of(tokens, len(tokens)), self._held.cached, 1, 0.0, chance)
        self._peek = peek
        self._submit(peek, lambda: self._begin_bonus_branches(peek, bonus_count, whole_chance))

    def _begin_bonus_branches(self, peek: ProposeWork, bonus_count: int, whole_chance: float) -> None:
        self._bonus = Row(None, self._outlooks_of(peek.drafted())[0])
        for guess in self._best(self._bonus_guesses(whole_chance, 0.0), bonus_count):
            self._begin_branch(guess, peek.sequence)

    def _begin_ranked(self, guess: Guess) -> None:
        """Draws the token of a rank after the whole block with what follows it: nobody has to see it first. Draws are
        keyed by position, or by step and offset, so they are those of the branch of that token."""
        tokens = list(self._held.cached.tokens)
        count = self._count(len(tokens))
        if count < 1:
            return
        sequence = self._branch_of(tokens, len(tokens))
        work = self._work(sequence, self._held.cached, count + 1, 0.0, guess.probability)
        work.rank, work.looks_beyond = UNKNOWN - guess.outcome.next_token_id, True
        work.race_step = None if self._held.options.ignores_proposals else self.step - 1
        future = self._submit(work, lambda: self._note_ranked(branch))
        branch = Branch(outcome=guess.outcome, work=work, future=future, has_drawn_outcome=True)
        self.branches[guess.outcome] = branch

    def _note_ranked(self, branch: Branch) -> None:
        """Delivers a branch that has drawn its outcome and a proposal, unless another one is of the same outcome, or
        nothing can follow it."""
        if len(branch.work.tokens) < 2:
            return
        self._bonus = Row(None, self._outlooks_of(branch.work.drafted())[0])
        outcome = branch.outcome._replace(next_token_id=branch.work.tokens[0])
        if self._ends_with(outcome.next_token_id) or outcome in self.branches:
            return
        del self.branches[branch.outcome]
        branch.outcome = outcome
        self.branches[outcome] = branch
        self._deliver(branch)

    def _count(self, length: int) -> int:
        """Tokens of a proposal that follows `length` tokens and one more."""
        return min(self._order.count, self._order.max_length - length - 1)

    def _begin_branch(self, guess: Guess, parent: Sequence) -> None:
        outcome = guess.outcome
        length = self._base_length + outcome.accepted_count
        count = self._count(length)
        if count < 1:
            return
        tokens = [*self._held.cached.tokens[:length], outcome.next_token_id]
        sequence = self._branch_of(tokens, length)
        work = self._work(sequence, parent, count, self._order.min_confidence, guess.probability)
        work.looks_beyond = True
        branch = Branch(outcome=outcome, work=work, future=self._submit(work, lambda: self._deliver(branch)))
        self.branches[outcome] = branch

    def _branch_of(self, tokens: list[int], length: int) -> Sequence:
        own = self._held.cached
        return Sequence(tokens, valid_length=length, is_branch=True, encoder_input=own.encoder_input)

    def _work(
        self, sequence: Sequence, parent: Sequence, count: int, min_confidence: float, chance: float
    ) -> ProposeWork:
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
            chance=chance,
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
        self._deliver_block(
            PreparedBlock(
                sequence_id=self._sequence_id,
                step=self.step,
                base_length=self._base_length,
                accepted_count=branch.outcome.accepted_count,
                next_token_id=branch.outcome.next_token_id,
                drafted=branch.drafted(),
                withholds=self._order.withholds,
                is_current=lambda: self.is_live,
            )
        )


def shares_of(drafted: Drafted) -> list[float | None]:
    """The probability that each token of a proposal had in its row; None if outlooks say more, or rows are not sent."""
    if drafted.outlooks or drafted.tree is not None:
        return [None] * len(drafted.tokens)
    if drafted.dense:
        return [float(row[token]) for row, token in zip(drafted.dense, drafted.tokens, strict=True)]
    return [row.share_of(token) for row, token in zip(drafted.counts, drafted.tokens, strict=False)]
