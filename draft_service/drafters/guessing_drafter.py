"""Drafter: the draft model with guessed tokens, for chains that are proposed alone."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from torch import Tensor

from draft_service.drafters.guessing import GuessCounts, Guessing, GuessingWork, advance_guessing
from draft_service.drafters.model import ModelDrafter, WorkRunner, advance
from draft_service.proposal import Drafted, ProposeCall
from specpair.engine.work import Work
from specpair.sequences.held_sequence import HeldSequence


class GuessingDrafter(ModelDrafter):
    """The draft model, accelerated.

    Trees are grown without guesses. So are chains that will be merged with those of other drafts: how long they take
    must not depend on what is drawn (docs/exactness.md, rule 8).
    """

    def __init__(self, engine: WorkRunner, guessing: Guessing):
        super().__init__(engine)
        self._guessing = guessing

    async def propose(self, held: HeldSequence[Drafted], call: ProposeCall) -> Drafted:
        if call.max_tree_tokens or not is_guessed(held):
            return await super().propose(held, replace(call, looks=False))
        work = GuessingWork(
            sequence=held.cached,
            row_count=1,
            held=held,
            step=call.step,
            count=call.count,
            min_confidence=call.min_confidence,
            guessing=self._guessing,
            predictor=self._guessing.by.predictor(held),
        )
        await self._run(held, work)
        return replace(
            work.drafted(),
            guess_count=work.guess_count,
            accepted_guess_count=work.accepted_guess_count,
            pass_count=work.pass_count,
        )

    async def _prefill(self, held: HeldSequence[Drafted]) -> None:
        if not is_guessed(held):
            return await super()._prefill(held)
        own = GuessingWork(sequence=held.cached, row_count=0, held=held, step=0, count=0, guessing=self._guessing)
        await self._engine.run(own)


def is_guessed(held: HeldSequence[Drafted]) -> bool:
    """Whether the chains of a sequence are made with guesses."""
    return not held.options.draft_index


def advance_all(works: list[Work], logits: Tensor) -> None:
    """Goes on with every work of a draft model, from its rows of logits `[sum of row counts, vocabulary]`."""
    guessing = [work for work in works if isinstance(work, GuessingWork)]
    if not guessing:
        return advance(works, logits)
    rows = dict(zip(works, logits.split([work.row_count for work in works]), strict=True))
    advance_guessing(guessing, torch.cat([rows[work] for work in guessing]))
    others = [work for work in works if not isinstance(work, GuessingWork)]
    if others:
        advance(others, torch.cat([rows[work] for work in others]))


class GuessingCollector(Collector):
    """The counts of guesses, read at each scrape."""

    def __init__(self, counts: GuessCounts):
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "specpair_draft_guessed_tokens", "Tokens that were guessed for the draft model.", value=self._counts.guessed
        )
        yield CounterMetricFamily(
            "specpair_draft_accepted_guesses", "Guesses that the model then drew.", value=self._counts.accepted
        )
        yield CounterMetricFamily(
            "specpair_draft_guessing_seconds", "Time in which tokens were guessed.", value=self._counts.seconds
        )
