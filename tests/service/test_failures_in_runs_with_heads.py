"""A pass that fails in a run of a head's rounds: the tokens and the counts are those of single rounds."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from specpair.models.batch import Batch, PassOutput
from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from tests.service.distributions import RULES
from tests.services import Generated, RunningPair, engine_config, running_pair
from tests.tiny_heads import make_head
from tests.tiny_models import make_model

Pairs: TypeAlias = tuple[RunningPair, RunningPair, str]
"""Two pairs, and the rule to judge by."""

VOCABULARY = 12
PROMPT = [5, 2, 7, 2, 11]
COUNT = 40
PLACE = 24
"""Of the token whose passes fail; a run begins long before it."""


@pytest.fixture(scope="module", params=[0, 7], ids=["chains", "trees"])
async def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pairs]:
    """With single rounds, and with runs. Trees are proposed where any tree is exact."""
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=VOCABULARY, num_hidden_layers=3)
    head = str(make_head(folder / "head", vocab_size=VOCABULARY))
    config = engine_config(target, head=head, head_tree_tokens=request.param)
    async with AsyncExitStack() as stack:
        single, runs = [
            await stack.enter_async_context(running_pair(config, stream_interval=interval)) for interval in (0.0, 1.0)
        ]
        yield single, runs, "coupled" if request.param else "token"


def fail_passes(pair: RunningPair, times: int, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The next passes, so many, that feed the token at PLACE fail. Gives one entry for each that has not yet."""
    runner: Any = pair.target.host.engine._turns.runner
    forward, left = runner.forward, [None] * times

    def fail(batch: Batch) -> PassOutput:
        if left and any(segment.start <= PLACE < segment.end for segment in batch.segments):
            left.pop()
            raise RuntimeError("a pass that a test has fail")
        return forward(batch)

    monkeypatch.setattr(runner, "forward", fail)
    return left


@pytest.mark.parametrize("seed", range(4))
async def test_no_proposal_of_a_run_is_refused_for_a_later_pass(
    pairs: Pairs, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures are as many as the calls of the run: then its rounds come one by one, with all their proposals."""
    single, runs, rule = pairs
    options = {"num_speculative_tokens": 3, "temperature": 1.0, "seed": seed, "rule": RULES[rule]}
    options |= {"ignore_eos": True, "drafter": drafter_to_proto(Drafter.EAGLE)}
    expected = await single.generate(PROMPT, COUNT, **options)
    left = fail_passes(runs, 4, monkeypatch)
    made = await runs.generate(PROMPT, COUNT, **options)
    monkeypatch.undo()
    assert not left, "all of them failed"
    assert made.token_ids == expected.token_ids
    assert counts(made) == counts(expected)
    for pair in (single, runs):
        await pair.check_clean()


def counts(made: Generated) -> tuple[int, ...]:
    speculation = made.summary.speculation
    return speculation.round_count, speculation.draft_token_count, speculation.fallback_count
