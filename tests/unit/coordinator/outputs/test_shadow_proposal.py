"""Proposals beside plain rounds: nobody waits for them, no target sees them, and what they say is learned."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.shadow_proposal import ShadowProposal
from coordinator.peers import CallTimes, Proposed
from specpair.options import Rule, SamplingOptions
from specpair.v1.proposal_pb2 import Proposal
from tests.unit.coordinator.pair_bench import AWAY, Bench, bench, collect

TIMES = CallTimes(started_at=0.0, elapsed=0.004, queue=0.0, compute=0.003)
LENGTH = 4
ASKING = 5
"""The round of an output with a draft that has a shadow proposal beside it."""


def made(token_ids: Sequence[int] | None) -> "asyncio.Task[Proposed | None]":
    async def answer() -> Proposed | None:
        await asyncio.sleep(0)
        return None if token_ids is None else Proposed(proposal=Proposal(token_ids=token_ids), times=TIMES)

    return asyncio.create_task(answer())


@pytest.mark.parametrize(
    ("followed", "accepted"),
    [((), None), ((7,), None), ((7, 8), None), ((9,), 0), ((7, 9), 1), ((7, 8, 9), 3), ((7, 8, 5, 9), 2)],
)
async def test_it_is_known_once_a_token_differs_or_all_have_come(followed: tuple[int, ...], accepted: int) -> None:
    shadow = ShadowProposal(made((7, 8, 9)), 3, 2)
    assert shadow.accepted_count([1, 2, *followed]) is None, "the draft has not answered"
    await asyncio.sleep(0.001)
    assert shadow.accepted_count([1, 2, *followed]) == accepted and not shadow.has_failed


async def test_a_draft_without_a_guess_has_none_right() -> None:
    shadow = ShadowProposal(made(()), 3, 2)
    await asyncio.sleep(0.001)
    assert shadow.accepted_count([1, 2]) == 0


async def test_one_that_failed_says_nothing() -> None:
    shadow, cancelled = ShadowProposal(made(None), 3, 2), made((7,))
    assert not shadow.has_failed
    cancelled.cancel()
    await asyncio.sleep(0.001)
    for each in (shadow, ShadowProposal(cancelled, 3, 2)):
        assert each.has_failed and each.accepted_count([1, 2, 3]) is None


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What outputs learned from their shadow proposals, of which each has one."""
    ready, said = list[bool](), list[tuple[int, int]]()

    def choose(self: OutputLength, longest: int, *, is_ready: bool, is_due: bool) -> Decision:
        ready.append(is_ready)
        is_asking = is_ready and self._has_shadows and ready.count(True) == ASKING
        return Decision(0, opens_draft=not is_ready, shadow_length=LENGTH if is_asking else 0)

    monkeypatch.setattr(OutputLength, "_choose", choose)
    monkeypatch.setattr(OutputLength, "add_shadow", lambda self, asked, accepted: said.append((asked, accepted)))
    return said


def counted(b: Bench, drafter: str = "unknown", rule: str = "coupled") -> list[float | None]:
    value, labels = b.pair.metrics.registry.get_sample_value, {"drafter": drafter, "rule": rule}
    return [value(f"specpair_shadow_{name}_total", labels) for name in ("tokens", "accepted_tokens")]


ADAPTIVE: dict[str, Any] = {"max_tokens": 30, "num_speculative_tokens": None}


async def test_it_changes_no_round_and_is_learned(learned: list[tuple[int, int]]) -> None:
    async with bench() as b:
        generation = await b.run(**ADAPTIVE, rule=Rule.COUPLED)
        assert b.draft.counts == [LENGTH] and generation.acceptance.draft_token_count == 0
        assert b.target.promises.count(None) <= 2, "rounds beside it are promised as any others"
        ((asked, accepted),) = learned
        assert asked == LENGTH and 0 <= accepted <= LENGTH
        assert counted(b) == [asked, accepted]


async def test_it_says_what_the_target_would_have(
    learned: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake draft is wrong at every fifth position: the tokens before the next such one are right."""
    lengths = list[int]()

    async def propose(name: str, step: int, base_length: int, appended: Sequence[int], *args: Any, **more: Any) -> Any:
        lengths.append(base_length + len(appended))
        return await answer(name, step, base_length, appended, *args, **more)

    async with bench() as b:
        answer = b.draft.propose
        monkeypatch.setattr(b.draft, "propose", propose)
        await b.run(**ADAPTIVE, rule=Rule.COUPLED)
    (length,) = lengths
    assert learned == [(LENGTH, min(-length % 5, LENGTH))]


@pytest.mark.parametrize(
    ("changes", "has_some"),
    [
        ({"rule": Rule.COUPLED}, True),
        ({"rule": Rule.TOKEN, "sampling": SamplingOptions(temperature=0.0)}, True),
        ({"rule": Rule.TOKEN, "sampling": SamplingOptions(temperature=1.0)}, False),
        ({"rule": Rule.BLOCK, "sampling": SamplingOptions(temperature=1.0)}, False),
    ],
)
async def test_only_where_the_output_does_not_depend_on_proposals(
    learned: list[tuple[int, int]], changes: dict[str, Any], has_some: bool
) -> None:
    async with bench() as b:
        await collect(b.generation(**ADAPTIVE, **changes))
        assert len(b.draft.counts) == len(learned) == has_some


async def test_a_failure_of_the_draft_harms_no_round(learned: list[tuple[int, int]]) -> None:
    async with bench() as b:
        b.draft.faults.before = {0: AWAY}
        generation = await b.run(**ADAPTIVE, rule=Rule.COUPLED)
        assert not learned and generation.acceptance.fallback_count == 0
        assert counted(b) == [None, None], "a drafter that was never heard of has no series"


async def test_one_that_comes_after_its_tokens_counts_as_well(learned: list[tuple[int, int]]) -> None:
    async with bench() as b:
        b.draft.delay, b.target.delay = 0.02, 0.002
        await b.run(**ADAPTIVE, rule=Rule.COUPLED)
        assert len(learned) == 1


async def test_an_output_that_ends_first_leaves_it(learned: list[tuple[int, int]]) -> None:
    async with bench() as b:
        b.draft.delay = 0.15
        await b.run(**ADAPTIVE, rule=Rule.COUPLED)
        assert not learned
