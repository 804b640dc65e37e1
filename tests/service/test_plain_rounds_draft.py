"""A draft in a round without a proposal: it takes the tokens, and prepares what it would answer in the next one."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from draft_service.ahead.counts import Result
from draft_service.host import DraftHost
from specpair.v1 import draft_service_pb2 as pb
from tests.service.ahead_caller import ORDER, PROMPT, ahead_caller, asked, close_sequence, open_sequence
from tests.services import RunningModel, draft_config, running_draft
from tests.tiny_models import make_model

COUPLED = {"sampling": {"temperature": 1.0, "seed": 4}, "rule": "ACCEPTANCE_RULE_COUPLED"}
SEQUENCES: dict[str, dict[str, Any]] = {
    "coupled": COUPLED,
    "greedy": {"sampling": {"temperature": 0.0, "seed": 4}},
    "greedy-penalised": {"sampling": {"temperature": 0.0, "seed": 4, "frequency_penalty": 0.4}},
    "stopping": {**COUPLED, "sampling": {"temperature": 1.0, "seed": 4, "stop_token_ids": list(range(0, 64, 2))}},
    "block": {"sampling": {"temperature": 1.0, "seed": 4}, "rule": "ACCEPTANCE_RULE_BLOCK"},
}
PLAIN = {"is_plain": True, "num_speculative_tokens": 1}


@pytest.fixture(params=["contiguous", "paged"])
async def draft(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningModel]:
    folder = make_model(tmp_path / "draft", vocab_size=64)
    config = draft_config(folder, cache=request.param, deterministic=request.param == "paged")
    async with running_draft(config) as model:
        yield model


@pytest.mark.few_cases(10)
@pytest.mark.parametrize("min_confidence", [0.0, 0.01])
@pytest.mark.parametrize("way", ["asks", "tells"])
@pytest.mark.parametrize("kind", SEQUENCES)
async def test_what_it_prepares_is_what_it_would_answer(
    draft: RunningModel, kind: str, way: str, min_confidence: float
) -> None:
    """Also where it is drawn in one work with the token that it follows; then the sequence goes on."""
    fields, order = SEQUENCES[kind], {**ORDER, "min_confidence": min_confidence}
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **fields)
        first = await caller.call("s", 0, len(PROMPT), [], work_ahead=order)
        odd = first.proposal.token_ids[0] ^ 1
        tokens = [*PROMPT, odd]
        if way == "asks":
            answer = await caller.call("s", 1, len(PROMPT), [odd], work_ahead=order, **PLAIN)
            assert not answer.proposal.token_ids
        else:
            await caller.tell("s", 1, len(PROMPT), [odd], work_ahead=order, **PLAIN)
        blocks = await caller.prepared("s", 2, 3)
        for (accepted, token), block in blocks.items():
            assert accepted == 0 and block.base_length == len(tokens)
            assert (
                block.proposal
                == (await asked(draft, fields, [*tokens, token], 2, min_confidence=min_confidence)).proposal
            )
        call = {"has_proposal": True, "work_ahead": order, "min_confidence": min_confidence}
        for (_, token), block in blocks.items():  # the first that came is used, and goes on
            await caller.call("s", 2, len(tokens), [token], **call)
            length, accepted = len(tokens) + 1, block.proposal.token_ids[:1]
            following = await caller.call("s", 3, length, [*accepted, odd])
            assert following.proposal == (await asked(draft, fields, [*tokens, token, *accepted, odd], 3)).proposal
            break
        await close_sequence(draft, "s")
    await draft.check_clean()


def held_device(host: DraftHost) -> threading.Event:
    """Keeps the device thread busy until the event is set."""
    assert host.model is not None
    release = threading.Event()

    def wait() -> None:
        release.wait(20)

    host.model.engine.ask(wait)
    return release


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("is_reading", [False, True])
@pytest.mark.parametrize("kind", SEQUENCES)
async def test_it_prepares_for_the_first_token_while_the_target_reads_the_prompt(
    draft: RunningModel, kind: str, is_reading: bool
) -> None:
    """Told while it reads the prompt itself, it begins when it has read that: once, however often it was told."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    fields = SEQUENCES[kind]
    assert isinstance(draft.host, DraftHost)
    release = held_device(draft.host)
    async with ahead_caller(draft) as caller:
        if not is_reading:
            release.set()
        await open_sequence(draft, "s", PROMPT, **fields)
        while not is_reading and draft.host.is_reading("s"):
            await asyncio.sleep(0.001)
        for _ in range(1 + 2 * is_reading):
            await caller.tell("s", 0, len(PROMPT), [], work_ahead=ORDER, **PLAIN)
        if is_reading:
            await asyncio.sleep(0.05)  # all have come
            assert draft.host.is_reading("s") and len(draft.host._when_read) == 1
            release.set()
        blocks = await caller.prepared("s", 1, 1 if kind == "stopping" else 3)
        for (accepted, token), block in blocks.items():
            assert accepted == 0 and block.base_length == len(PROMPT)
            assert block.proposal == (await asked(draft, fields, [*PROMPT, token], 1)).proposal
        (_, token), block = next(iter(blocks.items()))
        answer = await caller.call("s", 1, len(PROMPT), [token])
        assert not draft.host._when_read and not errors
        assert answer.was_prepared and answer.proposal == block.proposal
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_it_learns_what_came(draft: RunningModel) -> None:
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **COUPLED)
        first = await caller.call("s", 0, len(PROMPT), [], work_ahead=ORDER)
        blocks = await caller.prepared("s", 1, 8)
        accepted, token = next(iter(blocks))
        appended = [*first.proposal.token_ids[:accepted], token]
        await caller.call("s", 1, len(PROMPT), appended, work_ahead=ORDER, **PLAIN)
        assert isinstance(draft.host, DraftHost) and draft.host.model is not None
        counts = draft.host.model.ahead.counts
        assert counts.calls[Result.HIT, accepted] == 1, "it was ready, though the target had it too late"
        await caller.prepared("s", 2, 3)
        assert draft.host.sequences.get("s").length == len(PROMPT) + len(appended)
        await close_sequence(draft, "s")
    await draft.check_clean()


async def test_without_an_order_it_only_takes_the_tokens(draft: RunningModel) -> None:
    await open_sequence(draft, "s", PROMPT, **COUPLED)
    request = pb.ProposeTokensRequest(sequence_id="s", step=0, base_length=len(PROMPT), appended_token_ids=[3], **PLAIN)
    answer = await draft.hot.ProposeTokens(request)
    assert not answer.proposal.token_ids and draft.host.sequences.get("s").length == len(PROMPT) + 1
    assert (await draft.hot.ProposeTokens(request)).step == 0
    await close_sequence(draft, "s")
    await draft.check_clean()


async def test_a_sequence_that_is_closed_while_it_is_read_is_forgotten(draft: RunningModel) -> None:
    assert isinstance(draft.host, DraftHost)
    release = held_device(draft.host)
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **COUPLED)
        await caller.tell("s", 0, len(PROMPT), [], work_ahead=ORDER, **PLAIN)
        await asyncio.sleep(0.05)  # it has come
        assert len(draft.host._when_read) == 1
        await close_sequence(draft, "s")
        release.set()
        while draft.host._when_read:
            await asyncio.sleep(0.001)
    await draft.check_clean()


@pytest.mark.parametrize(
    ("sampling", "count"),
    [
        ({"temperature": 1.0, "top_k": 2}, 2),
        ({"temperature": 0.0, "allowed_token_ids": [3, 9, 40]}, 3),
        ({"temperature": 0.0}, 8),
    ],
    ids=["two", "greedy-three", "greedy"],
)
async def test_tokens_that_the_options_exclude_are_not_prepared_for_and_nothing_fails(
    draft: RunningModel, sampling: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no ranks beyond those that may come."""
    monkeypatch.setattr("draft_service.ahead.row_cost.RowCost.seconds", lambda _, count, size: 0.0)
    fields = {"sampling": {"seed": 4, **sampling}, "rule": "ACCEPTANCE_RULE_COUPLED"}
    async with ahead_caller(draft) as caller:
        await open_sequence(draft, "s", PROMPT, **fields)
        await caller.call("s", 0, len(PROMPT), [], work_ahead=ORDER, **PLAIN)
        blocks = await caller.prepared("s", 1, count)
        for (accepted, token), block in blocks.items():
            assert accepted == 0
            assert block.proposal == (await asked(draft, fields, [*PROMPT, token], 1)).proposal
        assert isinstance(draft.host, DraftHost) and draft.host.model is not None
        ahead = draft.host.model.ahead
        live = next(iter(ahead._live.values()))
        async with asyncio.timeout(20):
            while not all(branch.future.done() for branch in live.generation.branches.values()):
                await asyncio.sleep(0.001)
        assert len(live.generation.branches) == 8 and len(caller.blocks["s", 1]) == count
        assert sum(branch.is_ready for branch in live.generation.branches.values()) == count
        other = next(token for token in range(64) if (0, token) not in blocks)
        answer = await caller.call("s", 1, len(PROMPT), [other])
        assert not answer.was_prepared and answer.proposal == (await asked(draft, fields, [*PROMPT, other], 1)).proposal
        assert not ahead.counts.blocks["failed"] and ahead.counts.blocks["unused"] == 8
        await close_sequence(draft, "s")
    await draft.check_clean()
