"""examples/vllm with arguments as vLLM's, and real draft services."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from examples.vllm.proposer import IDLE_CALLS, PAUSE_CALLS, RemoteProposer
from specpair.client.blocking import BlockingDraft
from specpair.security.settings import ServerSecurity
from specpair.v1 import draft_service_pb2 as pb
from tests.service.certificates import Authority
from tests.service.rpc_servers import draft_server
from tests.services import PairSecurity, RunningModel, engine_config, running_draft
from tests.tiny_models import generate_greedily, load_plain, make_model

K = 3
MODEL_LENGTH = 96
VOCAB = 64
PROMPTS = [[7], [1, 2, 3, 4] * 4, [9, 8, 7, 9, 8], [9, 8, 7, 9, 8]]
TOKEN = "an-engine-as-a-client"
MADE: list[RemoteProposer] = []
"""Those of the test."""


def vllm_config(rank: int = 0) -> Any:
    """The fields of a VllmConfig that are read."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=K),
        model_config=SimpleNamespace(max_model_len=MODEL_LENGTH, get_vocab_size=lambda: VOCAB),
        parallel_config=SimpleNamespace(rank=rank, tensor_parallel_size=2),
    )


class Engine:
    """The part of vLLM that calls a proposer: rows of tokens, to which a step adds what its verification accepts."""

    def __init__(self, proposer: RemoteProposer):
        self.proposer = proposer
        self.rows: list[list[int]] = []
        self.drafts: list[list[int]] = []
        self.random = random.Random(0)
        MADE.append(proposer)

    def admit(self, prompt: list[int]) -> None:
        """As the last row. Its prompt is read in the next step."""
        self.rows.append(list(prompt))
        self.drafts.append([])

    def finish(self, row: int) -> None:
        """The last row takes its place, as where vLLM closes gaps."""
        for rows in (self.rows, self.drafts):
            rows[row] = rows[-1]
            rows.pop()

    async def step(self, silent: tuple[int, ...] = ()) -> list[list[int]]:
        """Each row accepts a part of its draft and gets one more token, but `silent` ones; the next drafts."""
        sampled = [[] if row in silent else self.verified(draft) for row, draft in enumerate(self.drafts)]
        for row, tokens in enumerate(sampled):
            self.rows[row] += tokens
        token_ids = np.full((8, MODEL_LENGTH), 63, dtype=np.int32)
        lengths = np.zeros(8, dtype=np.int32)
        for row, tokens in enumerate(self.rows):
            token_ids[row, : len(tokens)] = tokens
            lengths[row] = len(tokens)
        self.drafts = await asyncio.to_thread(self.proposer.propose, sampled, lengths, token_ids, slot_mappings=None)
        return self.drafts

    def verified(self, draft: list[int]) -> list[int]:
        return [*draft[: self.random.randint(0, len(draft))], self.random.randrange(VOCAB)]


@pytest.fixture
async def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningModel]:
    """Its address is where proposers ask."""
    async with running_draft(engine_config(make_model(tmp_path / "draft", vocab_size=VOCAB))) as draft:
        tell(monkeypatch, draft.address)
        yield draft


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    """vLLM ends a proposer with its process."""
    yield
    while MADE:
        MADE.pop().draft.shut_down()


def tell(monkeypatch: pytest.MonkeyPatch, address: str, **variables: str) -> None:
    monkeypatch.setenv("SPECPAIR_DRAFT", address)
    monkeypatch.setenv("SPECPAIR_DRAFT_TIMEOUT", "60")
    for name, value in variables.items():
        monkeypatch.setenv(f"SPECPAIR_DRAFT_{name}", value)


def engine_with(rows: int, rank: int = 0) -> Engine:
    engine = Engine(RemoteProposer(vllm_config(rank)))
    for prompt in PROMPTS[:rows]:
        engine.admit(prompt)
    return engine


async def test_proposals_are_what_the_draft_would_go_on_with(draft: RunningModel) -> None:
    """While rows accept and refuse, change places, are left out of a step, end and come."""
    plain = load_plain(Path(draft.host.model.config.model))  # type: ignore[union-attr]
    engine = engine_with(4)
    expected_rows = 0
    assert await engine.step() == [[]] * 4, "the draft reads the prompts first"
    for step in range(12):
        if step == 4:
            engine.finish(1)
        if step == 6:
            engine.admit([5, 6, 5, 6, 5])
        silent = (2,) if step == 3 else ()
        drafts = await engine.step(silent)
        for row, (tokens, proposed) in enumerate(zip(engine.rows, drafts, strict=True)):
            is_asked = row not in silent and not (step == 6 and row == 3)
            assert proposed == (generate_greedily(plain, tokens, K) if is_asked else [])
            expected_rows += is_asked
    assert expected_rows == 12 * 4 - 2 - 2
    known = [followed.tokens.tolist() for followed in engine.proposer.followed]
    assert sorted(known[:4]) == sorted(engine.rows), "only what came last is sent"
    assert draft.host.info().sequence_count == 5, "one of them has ended"


async def test_ended_sequences_are_closed(draft: RunningModel) -> None:
    engine = engine_with(2)
    await engine.step()
    assert draft.host.info().sequence_count == 2
    engine.finish(0)
    for _ in range(IDLE_CALLS + 1):
        engine.drafts = [[]]  # with what they accept the text would be too long before
        await engine.step()
    async with asyncio.timeout(60):
        while draft.host.info().sequence_count != 1:
            await asyncio.sleep(0.01)


async def test_at_the_end_of_the_model_less_is_proposed(draft: RunningModel) -> None:
    engine = Engine(RemoteProposer(vllm_config()))
    engine.admit([1] * (MODEL_LENGTH - 4))
    await engine.step()
    engine.drafts = [[]]
    assert len((await engine.step())[0]) == 2
    engine.rows, engine.drafts = [[1] * (MODEL_LENGTH - 1)], [[]]
    assert await engine.step() == [[]]
    assert engine.proposer.followed[0].idle_calls == 1, "nothing was asked"


async def test_only_the_first_rank_asks(draft: RunningModel) -> None:
    engine = engine_with(2, rank=1)
    assert [await engine.step() for _ in range(3)] == [[[], []]] * 3
    assert draft.host.info().sequence_count == 0


async def test_a_draft_that_lost_its_sequences_is_told_them_again(draft: RunningModel) -> None:
    engine = engine_with(2)
    await engine.step()
    assert all(await engine.step())
    for followed in engine.proposer.followed:
        await draft.host.close(followed.name)
    assert await engine.step() == [[], []], "it says that it does not know them"
    assert await engine.step() == [[], []], "they are opened"
    assert all(len(proposed) == K for proposed in await engine.step())


async def test_a_dead_draft_yields_no_proposals_and_is_left_alone(draft: RunningModel) -> None:
    now = [0.0]
    engine = engine_with(2)
    engine.proposer.draft.shut_down()
    engine.proposer.draft = BlockingDraft(draft.address, timeout=60, cooldown=5.0, clock=lambda: now[0])
    await engine.step()
    assert all(await engine.step())
    await draft.stop()
    assert await engine.step() == [[], []]
    assert engine.proposer.draft.is_quiet
    now[0] = 5.0
    assert not engine.proposer.draft.is_quiet
    assert [await engine.step() for _ in range(PAUSE_CALLS + 1)] == [[[], []]] * (PAUSE_CALLS + 1)
    assert engine.proposer.draft.is_quiet, "it was asked again, in vain"


async def test_a_draft_that_never_was_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, "127.0.0.1:1")
    engine = engine_with(2)
    assert [await engine.step() for _ in range(3)] == [[[], []]] * 3


async def test_a_draft_that_hangs_is_left_alone() -> None:
    calls = []

    async def hang(request: pb.ProposeTokensRequest) -> pb.ProposeTokensResponse:
        calls.append(request)
        await asyncio.sleep(3600)
        raise AssertionError

    async with draft_server(hang) as (_, port):
        draft = BlockingDraft(f"127.0.0.1:{port}", timeout=1.0, clock=lambda: 0.0)
        answers = await asyncio.to_thread(draft.propose, [pb.ProposeTokensRequest(sequence_id="s")])
        assert answers[0].is_slow and answers[0].response is None and draft.is_quiet
        await asyncio.to_thread(draft.propose, [pb.ProposeTokensRequest(sequence_id="s")])
        assert len(calls) <= 1
        draft.shut_down()


async def test_a_draft_on_another_host_wants_a_certificate_and_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    for name, text in (("services", f"engine:{TOKEN}\n"), ("mine", TOKEN), ("wrong", "another-token-of-somebody")):
        (tmp_path / name).write_text(text)
    models = ServerSecurity(tls=authority.tls("server"), tokens_file=str(tmp_path / "services"))
    peers = authority.tls("server", ca=authority.path)
    security = PairSecurity(models=models)
    config = engine_config(make_model(tmp_path / "draft", vocab_size=VOCAB))
    async with running_draft(config, security) as draft:
        tell(monkeypatch, draft.address, TLS_CA=str(peers.ca), TOKEN_FILE=str(tmp_path / "wrong"))
        refused = engine_with(1)
        assert [await refused.step() for _ in range(3)] == [[[]]] * 3
        monkeypatch.setenv("SPECPAIR_DRAFT_TOKEN_FILE", str(tmp_path / "mine"))
        engine = engine_with(1)
        await engine.step()
        assert len((await engine.step())[0]) == K
