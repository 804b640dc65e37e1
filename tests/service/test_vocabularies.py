"""Drafts with another vocabulary than the target's, through all three services."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import torch

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from draft_service.config import DraftConfig, VocabularyChoice
from draft_service.host import DraftHost
from draft_service.proposal import ProposeCall
from draft_service.serve import open_draft
from draft_service.translation.translation import Translation
from specpair.errors import InvalidFieldError
from specpair.model_info import VocabularyMethod
from specpair.options import Drafter, SamplingOptions, SequenceOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.server.config import ServerConfig
from specpair.server.metrics_registry import service_registry
from specpair.server.server import ServiceServer
from specpair.speculation import sparse_rows
from specpair.v1 import coordinator_service_pb2 as coordinator_pb2
from specpair.v1 import draft_service_pb2 as pb
from specpair.v1.structured_output_pb2 import StructuredOutput
from tests.service import distributions as distribution
from tests.service.distributions import ENCODINGS, OPTIONS, PLAIN, RULES
from tests.service.drafting import Served
from tests.services import RunningModel, RunningPair, engine_config, running_pair, running_target
from tests.tiny_models import generate_greedily, load_plain
from tests.tiny_tokenizers import (
    added,
    byte_fallback,
    byte_level,
    files,
    make_speaking_model,
    metaspace_unigram,
    word_pieces,
)

pytestmark = pytest.mark.timeout(600)

TARGET = byte_level(["a", "b", "ab", "c"], [["a", "b"]])
DRAFTS = {
    "unigram": (metaspace_unigram(["<unk>", "▁", "b", "a", "c", "ba", "cc"]), 7),
    "byte_level": (byte_level(["c", "ca", "a", "ab", "b"], [["a", "b"], ["c", "a"]]), 5),
    "byte_fallback": (byte_fallback(["▁", "b", "a", "c", "aa"], [["a", "a"]]), 261),
    "reduced": (byte_level(["a", "b", "ab"], [["a", "b"]]), 3),
}
"""Tokenizers, with the size of their vocabularies."""
DRAWS = 200
SHAPE = {"num_hidden_layers": 2, "initializer_range": 0.35}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_speaking_model(
        tmp_path_factory.mktemp("target"), TARGET, seed=3, vocab_size=distribution.VOCABULARY, **SHAPE
    )


@asynccontextmanager
async def translated_pair(
    target: Path, folder: Path, name: str, choice: VocabularyChoice = VocabularyChoice.AUTO
) -> AsyncIterator[RunningPair]:
    tokenizer, vocab_size = DRAFTS[name]
    draft = make_speaking_model(folder / "draft", tokenizer, seed=4, vocab_size=vocab_size, **SHAPE)
    config = DraftConfig(engine=engine_config(draft), vocabulary=choice)
    async with running_pair(engine_config(target), config) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module", params=["tli", "slem"])
async def served(
    request: pytest.FixtureRequest, target: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """A draft with marked spaces and seven tokens for a target with bytes and four, by both methods."""
    folder = tmp_path_factory.mktemp("draft")
    async with translated_pair(target, folder, "unigram", VocabularyChoice(request.param)) as pair:
        yield Served(pair, load_plain(target))


async def p_values(served: Served, options: SamplingOptions = PLAIN, **fields: Any) -> list[float]:
    counts = await distribution.draw(served.pair, options, DRAWS, **fields)
    return [distribution.p_value(counts, served.model, options, length) for length in (2, 3)]


async def accepted(pair: RunningPair, **options: Any) -> int:
    """Of one output; something has to be proposed in it."""
    done = await pair.generate(distribution.PROMPT, 30, seed=5, num_speculative_tokens=3, **options)
    assert done.summary.speculation.draft_token_count > 5
    assert done.summary.speculation.fallback_count == 0
    return done.summary.speculation.accepted_token_count


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("rule", "encoding"), [("token", "sparse"), ("block", "dense")])
async def test_joint_distribution(served: Served, rule: str, encoding: str) -> None:
    assert min(await p_values(served, rule=RULES[rule], encoding=ENCODINGS[encoding])) > 1e-3
    assert await accepted(served.pair, rule=RULES[rule], encoding=ENCODINGS[encoding]) > 0


async def test_coupled_output_is_that_without_speculation(served: Served) -> None:
    for seed in range(5):
        outputs = [
            await served.pair.generate(
                distribution.PROMPT, 30, seed=seed, num_speculative_tokens=count, rule=RULES["coupled"]
            )
            for count in (0, 3)
        ]
        assert outputs[0].token_ids == outputs[1].token_ids
    assert await accepted(served.pair, rule=RULES["coupled"]) > 0


@pytest.mark.parametrize("method", ["tli", "slem"])
async def test_a_structured_output(method: str, tmp_path: Path) -> None:
    tokenizer = byte_level(["a", "b", "ab", "c"], [["a", "b"]], [added(4)])
    target = make_speaking_model(tmp_path / "target", tokenizer, seed=3, vocab_size=5, eos_token_id=4, **SHAPE)
    asked = StructuredOutput(regex="([ab]{1,3}c){20}")
    kinds: list[dict[str, Any]] = [{"temperature": 0.0}, {"rule": RULES["coupled"], "seed": 5}]
    async with translated_pair(target, tmp_path, "unigram", VocabularyChoice(method)) as pair:
        for options in kinds:
            plain, made = [
                await pair.generate(
                    distribution.PROMPT, 24, structured_output=asked, num_speculative_tokens=count, **options
                )
                for count in (0, 3)
            ]
            assert made.token_ids == plain.token_ids
            assert re.fullmatch("([ab]{1,3}c)+[ab]{0,3}", made.text)
            assert made.summary.speculation.accepted_token_count > 0 == made.summary.speculation.fallback_count


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", ["repetition_penalty", "several"])
async def test_joint_distribution_under_options(served: Served, name: str) -> None:
    assert min(await p_values(served, OPTIONS[name], rule=RULES["block"])) > 1e-3


@pytest.mark.usefixtures("by_numpy")
async def test_a_distribution_that_is_not_renormalised_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the draft draws from common tokens, but what is sent has mass on one that it never draws."""
    if method_of(served.pair) is not VocabularyMethod.TLI:
        pytest.skip("no distributions are sent")
    right = sparse_rows.draw_counts

    def among_common(row: Any, bits: int) -> int:
        kept = [place for place, token in enumerate(row.token_ids) if token != 2]
        counts = [int(row.counts[place]) for place in kept]
        counts[0] += (1 << 24) - sum(counts)
        return right(type(row)([int(row.token_ids[place]) for place in kept], counts), bits)

    def with_all(self: Translation, logits: torch.Tensor, width: int) -> torch.Tensor:
        rows = logits.new_full((logits.shape[0], width), float(logits.max()))
        for token, own in self.shared.items():
            rows[:, token] = logits[:, own]
        return rows

    monkeypatch.setattr(Translation, "in_target_ids", with_all)
    monkeypatch.setattr(sparse_rows, "draw_counts", among_common)
    assert min(await p_values(served, rule=RULES["token"])) < 1e-4


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("choice", [VocabularyChoice.TLI, VocabularyChoice.SLEM])
@pytest.mark.parametrize("name", DRAFTS)
async def test_greedy_output_is_the_targets_own(
    target: Path, tmp_path: Path, name: str, choice: VocabularyChoice
) -> None:
    """Whatever tokens the draft has; several outputs share one sequence's prompt by forks."""
    async with translated_pair(target, tmp_path, name, choice) as pair:
        model = load_plain(target)
        for prompt in ([1, 2, 0], [3], [0, 1, 0, 1, 2, 2, 3, 0, 3, 1, 1]):
            done = await pair.generate(prompt, 40, temperature=0.0, num_speculative_tokens=4)
            assert done.token_ids == generate_greedily(model, prompt, 40)
            assert done.summary.speculation.fallback_count == 0
            assert done.summary.speculation.draft_token_count > 0


def method_of(pair: RunningPair) -> VocabularyMethod:
    assert pair.draft is not None
    return pair.draft.host.info().translations[0].method


async def test_a_vocabulary_that_made_room_for_others_is_handed_over_again(served: Served) -> None:
    host: Any = served.pair.draft.host if served.pair.draft else None
    host.translations._held.clear()
    assert await accepted(served.pair, rule=RULES["block"]) > 0
    assert len(host.info().translations) == 1


@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.NGRAM_MODEL])
async def test_drafters_without_a_model_need_no_translation(served: Served, drafter: Drafter) -> None:
    prompt = [1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]
    done = await served.pair.generate(
        prompt, 30, temperature=0.0, num_speculative_tokens=3, drafter=drafter_to_proto(drafter)
    )
    assert done.token_ids == generate_greedily(served.model, prompt, 30)
    assert done.summary.speculation.draft_token_count > 0


async def test_trees_and_work_ahead_are_answered_with_chains_in_time(served: Served) -> None:
    wanted = generate_greedily(served.model, distribution.PROMPT, 30)
    for options in ({"num_tree_tokens": 6}, {"work_ahead": coordinator_pb2.WORK_AHEAD_MODE_ON}):
        done = await served.pair.generate(
            distribution.PROMPT, 30, temperature=0.0, num_speculative_tokens=3, rule=RULES["coupled"], **options
        )
        assert done.token_ids == wanted
        assert done.summary.speculation.draft_token_count > 0
        assert done.summary.speculation.fallback_count == 0


async def test_after_rollbacks_and_forks_a_proposal_is_that_of_a_new_sequence(served: Served) -> None:
    """Positions of calls are the target's; what the model was fed follows them."""
    assert isinstance(served.pair.draft, RunningModel) and isinstance(served.pair.draft.host, DraftHost)
    host = served.pair.draft.host
    name = host.info().translations[-1].target_vocabulary
    options = SequenceOptions(sampling=SamplingOptions(temperature=0.0), vocab_size=4, target_vocabulary=name)

    async def propose(sequence_id: str, step: int, base_length: int, appended: list[int]) -> list[int]:
        call = ProposeCall(sequence_id=sequence_id, step=step, base_length=base_length, appended=appended, count=3)
        return (await host.propose(call, (step, base_length, tuple(appended)))).tokens

    async def new(tokens: list[int]) -> list[int]:
        await host.open("new", tokens, len(tokens), options)
        try:
            return await propose("new", 0, len(tokens), [])
        finally:
            await host.close("new")

    prompt = [1, 0, 3, 0, 1, 2]
    await host.open("old", prompt, len(prompt), options)
    assert await propose("old", 0, 6, []) == await new(prompt)
    assert await propose("old", 1, 6, [0, 1, 1]) == await new([*prompt, 0, 1, 1])
    assert await propose("old", 2, 7, [3]) == await new([*prompt, 0, 3])
    await host.fork("old", "forked", 4, None)
    assert await host.rollback("old", 2) == 2
    assert await propose("old", 3, 2, [2]) == await new([1, 0, 2])
    assert await propose("forked", 3, 4, [1]) == await new([1, 0, 3, 0, 1])
    for sequence_id in ("old", "forked"):
        await host.close(sequence_id)
    await served.pair.draft.check_integrity()


async def test_a_text_that_is_longer_in_the_drafts_tokens_than_the_draft_reads_gets_no_proposals(
    target: Path, tmp_path: Path
) -> None:
    """The target's token "ab" is two of the draft's, and the draft reads 24 tokens."""
    tokenizer = byte_level(["c", "a", "b"], [])
    draft = make_speaking_model(
        tmp_path / "draft", tokenizer, seed=4, vocab_size=3, **SHAPE, max_position_embeddings=24
    )
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        done = await pair.generate([2] * 14, 12, temperature=0.0, num_speculative_tokens=3)
        assert done.token_ids == generate_greedily(load_plain(target), [2] * 14, 12)
        assert done.summary.speculation.fallback_count == 0
        assert done.summary.speculation.draft_token_count == 0
        await pair.check_clean()


async def test_what_an_opening_has_to_say(served: Served) -> None:
    host: Any = served.pair.draft.host if served.pair.draft else None
    name = host.info().translations[0].target_vocabulary
    for wrong, field in (
        ({"target_vocabulary": "0" * 64, "vocab_size": 4}, "target_vocabulary"),
        ({"target_vocabulary": name}, "vocab_size"),
        ({"target_vocabulary": name, "vocab_size": 1 << 21}, "vocab_size"),
        ({"target_vocabulary": name, "vocab_size": 4, "drafter": Drafter.UNIGRAM}, "drafter"),
    ):
        with pytest.raises(InvalidFieldError) as caught:
            await host.open("s", [1], 1, SequenceOptions(sampling=PLAIN, **wrong))
        assert caught.value.metadata["field"] == field


async def test_a_draft_that_was_started_anew_gets_the_vocabulary_again(target: Path, tmp_path: Path) -> None:
    tokenizer, vocab_size = DRAFTS["byte_level"]
    draft = make_speaking_model(tmp_path / "draft", tokenizer, seed=4, vocab_size=vocab_size, **SHAPE)
    async with running_target(engine_config(target)) as targets:
        async with draft_at(draft, 0) as (port, _):
            settings = CoordinatorConfig(
                server=ServerConfig(port=0), target_addresses=(targets.address,), draft_addresses=(f"127.0.0.1:{port}",)
            )
            pairing = connect_pair(settings)
            pair = await pairing.__aenter__()
            assert pair.draft is not None
        try:
            async with draft_at(draft, port) as (_, host), asyncio.timeout(60):
                while not pair.draft.is_there or not host.info().translations:
                    await asyncio.sleep(0.01)
                link = next(iter(pair.draft.links.values()))
                await link.peer.open("s", [1, 2], 2, SequenceOptions(sampling=PLAIN, vocab_size=4), 60.0)
                assert len(host.sequences) == 1
        finally:
            await pairing.__aexit__(None, None, None)


@asynccontextmanager
async def draft_at(folder: Path, port: int) -> AsyncIterator[tuple[int, DraftHost]]:
    """A draft service at a port, 0 for any."""
    server = ServiceServer(ServerConfig(port=port, grace_seconds=0.0), service_registry("draft"))
    port = await server.start()
    try:
        async with open_draft(server, DraftConfig(engine=engine_config(folder))) as host:
            await server.set_ready(True)
            yield port, host
            await server.stop()
    finally:
        await server.stop()


async def test_limits_of_handing_over(served: Served) -> None:
    """Too much, too little, and what is no tokenizer: refused with the field or the reason; nothing is kept."""
    assert served.pair.draft is not None
    draft: Any = served.pair.draft
    piece = pb.TakeTargetTokenizerRequest
    for pieces, code, reason in (
        ([], "INVALID_ARGUMENT", "tokenizer_json_chunk"),
        ([piece(tokenizer_json_chunk=b"{"), piece()], "INVALID_ARGUMENT", "tokenizer_json_chunk"),
        ([piece(tokenizer_json_chunk=b"x" * 2**21)] * 40, "INVALID_ARGUMENT", str(64 * 2**20)),
        ([piece(tokenizer_json_chunk=b"{", eos_token="e" * 2000)], "INVALID_ARGUMENT", "eos_token"),
        ([piece(tokenizer_json_chunk=b"{}")], "FAILED_PRECONDITION", "tokenizer"),
        ([piece(tokenizer_json_chunk=json.dumps(word_pieces()).encode())], "FAILED_PRECONDITION", "WordPiece"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await draft.hot.TakeTargetTokenizer(iter(pieces), timeout=60)
        assert caught.value.code().name == code
        assert reason in (caught.value.details() or "")
    assert len(draft.host.info().translations) == 1


async def test_vocabularies_that_nobody_uses_make_room(served: Served) -> None:
    assert served.pair.draft is not None
    host: Any = served.pair.draft.host
    for count in range(6):
        made = byte_level(["a", "b", *map(str, range(count))], [])
        await host.take_target_tokenizer(files(made))
    assert len(host.info().translations) == 4
    assert await accepted(served.pair, rule=RULES["block"]) > 0
