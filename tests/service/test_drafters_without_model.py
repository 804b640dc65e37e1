"""A draft service without a model: what it says, what it refuses, and the pair that it makes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from draft_service.config import DraftConfig
from draft_service.host import DraftHost
from specpair.errors import InvalidFieldError, ModelRefusedError, NotSupportedError
from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto, model_info_from_proto
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2
from tests.service.drafting import (
    ENCODINGS,
    PROMPTS,
    WITHOUT_MODEL,
    close,
    generate,
    open_sequence,
    propose,
    refused,
    write_table,
)
from tests.services import RunningModel, draft_config, engine_config, running_draft, running_pair, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def without_model() -> AsyncIterator[RunningModel]:
    config = DraftConfig(drafter=Drafter.NGRAM, max_model_len=40, max_num_seqs=2, max_num_speculative_tokens=6)
    async with running_draft(config) as draft:
        yield draft


async def test_without_a_model_it_says_so(without_model: RunningModel) -> None:
    info = model_info_from_proto(await without_model.sequences.GetModelInfo(pb.GetModelInfoRequest()))
    assert (info.model_name, info.architecture, info.parameter_count, info.vocab_size) == ("ngram", "none", 0, 0)
    assert (info.max_model_len, info.max_num_seqs, info.max_num_speculative_tokens) == (40, 2, 6)
    assert info.drafters == WITHOUT_MODEL
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await without_model.sequences.GetTokenizer(pb.GetTokenizerRequest()).read()
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_drafters_that_are_not_there_are_refused(without_model: RunningModel) -> None:
    for drafter, needs in ((Drafter.MODEL, "a draft model"), (Drafter.BIGRAM, "a table of counts")):
        with refused(
            InvalidFieldError, f"drafter: {drafter} needs {needs}, and there is none; available are ngram, "
        ) as e:
            await open_sequence(without_model, "s", [1], drafter=drafter_to_proto(drafter))
        assert e.value.metadata["available"] == "ngram, prompt-lookup, uniform"
    with refused(InvalidFieldError, "drafter: 77 is not a Drafter"):
        await open_sequence(without_model, "s", [1], drafter=77)


@pytest.mark.parametrize("config", [DraftConfig(), DraftConfig(drafter=Drafter.UNIGRAM)])
async def test_a_default_that_cannot_be_is_refused_at_start(config: DraftConfig) -> None:
    with pytest.raises(ModelRefusedError, match=r"--drafter: .* and there is none"):
        await DraftHost.start(config)


async def test_a_table_of_another_tokenizer_is_refused_at_start(tmp_path: Path) -> None:
    bundled = Path(__file__).parents[2] / "models" / "bundled" / "draft"
    config = replace(draft_config(bundled), table=write_table(tmp_path / "tables", 4096))
    with pytest.raises(ModelRefusedError, match="another tokenizer"):
        await DraftHost.start(config)


async def test_limits_without_a_model(without_model: RunningModel) -> None:
    with refused(InvalidFieldError, "vocab_size: must be set"):
        await without_model.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=[1], sampling={"seed": 1})
        )
    with refused(InvalidFieldError, "token_ids: holds 10; ids are below 10"):
        await open_sequence(without_model, "s", [1, 10])
    with refused(InvalidFieldError, "prompt: has 40 tokens; at most 39"):
        await open_sequence(without_model, "s", [1] * 40)
    with refused(InvalidFieldError, "encoding: is dense, but a vocabulary of 268435456 is too large for that"):
        await open_sequence(without_model, "s", [1], vocab_size=2**28, encoding=ENCODINGS["dense"])
    await open_sequence(without_model, "s", [1, 2, 1])
    with refused(InvalidFieldError, "appended_token_ids: holds 10"):
        await propose(without_model, "s", 0, 3, 1, appended_token_ids=[10])
    with refused(InvalidFieldError, "num_speculative_tokens: is 7; it must be between 1 and 6"):
        await propose(without_model, "s", 0, 3, 7)
    for value in (-0.1, 1.5, float("nan")):
        with refused(InvalidFieldError, "min_confidence: is .* between 0.0 and 1.0"):
            await propose(without_model, "s", 0, 3, 1, min_confidence=value)
    await open_sequence(without_model, "t", [1])
    with refused(Exception, "2 sequences are open, the most that are allowed"):
        await open_sequence(without_model, "u", [1])
    await close(without_model, "s", "t")
    await without_model.check_clean()


async def test_proposals_end_where_the_length_ends(without_model: RunningModel) -> None:
    await open_sequence(without_model, "s", [1, 2] * 18)
    assert list((await propose(without_model, "s", 0, 36, 6)).proposal.token_ids) == [1, 2, 1, 2]


async def test_what_is_not_known_is_not_proposed(without_model: RunningModel) -> None:
    """An empty proposal is an answer like any other: it is repeated, and the sequence goes on from it."""
    await open_sequence(without_model, "s", [1, 2, 3])
    empty = await propose(without_model, "s", 0, 3, 4)
    assert list(empty.proposal.token_ids) == [] and not empty.proposal.HasField("distributions")
    assert await propose(without_model, "s", 0, 3, 4) == empty
    known = await propose(without_model, "s", 1, 3, 4, appended_token_ids=[1, 2])
    assert list(known.proposal.token_ids) == [3, 1, 2, 3]
    assert known.proposal.distributions.WhichOneof("encoding") == "one_hot"
    assert (known.drafter, known.batch_size, known.queue_time_us) == (drafter_to_proto(Drafter.NGRAM), 0, 0)


@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.PROMPT_LOOKUP])
async def test_what_an_encoder_reads_is_copied_from(without_model: RunningModel, drafter: Drafter) -> None:
    """By forks, too; a token that no target has is never proposed."""
    options = {"drafter": drafter_to_proto(drafter), "encoder_token_ids": [4, 5, 6, 7, 8, 99]}
    await open_sequence(without_model, "s", [1, 5], **options)
    await without_model.sequences.ForkSequence(pb.ForkSequenceRequest(sequence_id="s", forked_sequence_id="f"))
    for name in ("s", "f"):
        assert list((await propose(without_model, name, 0, 2, 2)).proposal.token_ids) == [6, 7]
        after = await propose(without_model, name, 1, 2, 4, appended_token_ids=[6, 7])
        assert list(after.proposal.token_ids)[:1] == [8] and 99 not in after.proposal.token_ids
    await close(without_model, "s", "f")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_model(tmp_path / "target", seed=1)


async def test_a_round_of_draft_and_target(target: Path) -> None:
    """By hand, as a client of both would: whatever the draft proposes, greedy text is the target's own."""
    expected = generate_greedily(load_plain(target), [1, 2, 3, 4] * 4, 20)
    prompt, rounds = [1, 2, 3, 4] * 4, 0
    async with (
        running_draft(DraftConfig(drafter=Drafter.PROMPT_LOOKUP)) as draft,
        running_target(engine_config(target)) as verifier,
    ):
        for service in (draft, verifier):
            await open_sequence(service, "s", prompt, vocab_size=64)
        tokens, held = list(prompt), {draft.address: len(prompt), verifier.address: len(prompt)}
        while len(tokens) < len(prompt) + 20:
            behind = tokens[held[draft.address] :]
            proposed = await propose(draft, "s", rounds, held[draft.address], 4, appended_token_ids=behind)
            held[draft.address] = len(tokens)
            verdict = await verifier.hot.VerifyProposal(
                target_service_pb2.VerifyProposalRequest(
                    sequence_id="s", step=rounds, base_length=len(tokens), proposal=proposed.proposal
                )
            )
            tokens += [*proposed.proposal.token_ids[: verdict.accepted_count], verdict.next_token_id]
            rounds += 1
        assert tokens[len(prompt) :][:20] == expected
        for service in (draft, verifier):
            await close(service, "s")
            await service.check_clean()
    assert rounds < 20, "something must have been accepted"


@pytest.mark.parametrize("drafter", WITHOUT_MODEL)
async def test_a_pair_without_a_draft_model(target: Path, drafter: Drafter) -> None:
    """Through the coordinator, by the draft's own choice; with forks, and sequences longer than the draft takes."""
    plain = load_plain(target)
    async with running_pair(engine_config(target), DraftConfig(drafter=drafter, max_model_len=32)) as pair:
        for prompt in PROMPTS:
            output = await generate(pair, None, 30, prompt, temperature=0)
            assert output.token_ids == generate_greedily(plain, prompt, 30)
        outputs = await generate(pair, None, 20, [1, 2, 3] * 3, n=4, seed=5)
        assert len(outputs.token_ids) == 80
        assert outputs.summary.speculation.draft_token_count > 0
        with refused(InvalidFieldError, "drafter"):
            await generate(pair, Drafter.MODEL, 5, [1, 2])
        await pair.check_clean()


async def test_a_model_that_no_drafter_asks_for_is_not_fed(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "draft", seed=2)
    async with running_draft(replace(draft_config(folder), drafter=Drafter.NGRAM)) as draft:
        await open_sequence(draft, "s", [1, 2, 1], vocab_size=64)
        await propose(draft, "s", 0, 3, 2)
        info = draft.host.info()
        assert info.free_block_count == info.block_count
        assert info.drafters[:2] == (Drafter.NGRAM, Drafter.MODEL)
        with refused(NotSupportedError, "no tokenizer"):
            await draft.sequences.GetTokenizer(pb.GetTokenizerRequest()).read()
        await close(draft, "s")
        await draft.check_clean()
