"""The pair as it starts, and what the log says of it."""

import logging

import pytest

from specpair.errors import (
    PeerUnavailableError,
    VocabularyMismatchError,
)
from tests.unit.coordinator.fake_peers import FakeDraft, FakeTarget
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import PROMPT, bench, drafts_of, targets_of, until


async def test_the_start_waits_for_a_target_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(model_info())
    target.is_serving = False
    async with targets_of(target).watched() as targets:
        with pytest.raises(PeerUnavailableError, match=r"none of fake:1 could be reached within 0\.02 s"):
            await targets.wait_until_there(0.02)
        target.say_health(is_serving=True)
        await targets.wait_until_there(1.0)
        assert targets.info is target.model


async def test_the_start_refuses_another_vocabulary_and_goes_on_without_an_absent_draft() -> None:
    absent = FakeDraft(model_info(), "absent:1")
    absent.is_serving = False
    async with targets_of(FakeTarget(model_info())).watched() as targets:
        await targets.wait_until_there(1.0)
        async with drafts_of(targets.model, FakeDraft(model_info(vocab_size=50))).watched() as drafts:
            with pytest.raises(VocabularyMismatchError):
                await drafts.wait_until_there(1.0)
        async with drafts_of(targets.model, absent).watched() as drafts:
            with pytest.raises(PeerUnavailableError):
                await drafts.wait_until_there(0.02)
            assert drafts.choose(PROMPT) is None


async def test_an_instance_that_goes_is_in_the_log_though_nothing_runs_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "coordinator.peers.link")
    async with bench() as b:
        link, drafts = b.pair.target.links["target:1"], b.pair.draft
        b.target.say_health(is_serving=False)
        await until(lambda: not link.is_there)
        b.target.say_health(is_serving=True)
        await until(lambda: link.is_there)

        assert drafts is not None
        b.draft.die()
        await until(lambda: not drafts.is_there)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "the target at target:1 takes no new work at present") in said
    assert ("WARNING", "lost the connection to the draft at draft:1") in said
