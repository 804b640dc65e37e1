"""Whatever fails and whenever: the tokens stay the target's own."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.peers import backoff
from specpair.errors import (
    CapacityExhaustedError,
    InvalidDistributionError,
    NotFiniteError,
)
from specpair.rpc.retry import RetryPolicy
from tests.unit.coordinator.pair_bench import (
    AWAY,
    bench,
)

ERRORS = st.sampled_from([AWAY, NotFiniteError(), CapacityExhaustedError("full"), InvalidDistributionError("x", "y")])
SCHEDULES = st.dictionaries(st.integers(0, 30), ERRORS, max_size=8)
TARGET_SCHEDULES = st.dictionaries(st.integers(0, 30), st.just(AWAY), max_size=6)


@given(SCHEDULES, SCHEDULES, SCHEDULES, TARGET_SCHEDULES, TARGET_SCHEDULES)
def test_no_schedule_of_faults_changes_a_token(
    before: dict[int, Exception],
    after: dict[int, Exception],
    opening: dict[int, Exception],
    target_before: dict[int, Exception],
    target_after: dict[int, Exception],
) -> None:
    async def run() -> None:
        async with bench() as b:
            b.draft.faults.before, b.draft.faults.after, b.draft.open_faults.before = before, after, opening
            b.target.faults.before, b.target.faults.after = target_before, target_after
            await b.run()
            steps = b.target.steps
            assert steps == sorted(steps), "steps must never go back"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "POLICY", RetryPolicy(first=0.0001))
        asyncio.run(run())
