"""Every drafter through the real services: the text is the target's own, whatever proposes.

The joint distribution of the first tokens is held against exact enumeration of the target, as in test_distribution;
greedy output against that without speculation; coupled output against that of every other drafter.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save_file

from draft_service.config import DraftConfig
from draft_service.host import DraftHost
from draft_service.table_file import FORMAT
from specpair.errors import InvalidFieldError, ModelRefusedError, NotSupportedError
from specpair.options import Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto, model_info_from_proto
from specpair.rpc.status import peer_errors
from specpair.speculation import predicted_proposal
from specpair.speculation.count_row import CountRow
from specpair.speculation.randomness import Domain, draw_bits
from specpair.speculation.tables import count_corpus
from specpair.v1 import draft_service_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.reference import last_logits
from tests.service import test_distribution as distribution
from tests.services import (
    Generated,
    RunningModel,
    RunningPair,
    draft_config,
    engine_config,
    running_draft,
    running_pair,
    running_target,
)
from tests.tiny_models import generate_greedily, load_plain, make_model

pytestmark = pytest.mark.timeout(600)

PROMPT = [1, 2, 0, 3, 1, 2, 0, 1, 2]
"""It repeats itself, so that there is something to count and to copy."""
DRAWS = 400
RULES = distribution.RULES
ENCODINGS = distribution.ENCODINGS
SAMPLED = SamplingOptions()
WITHOUT_MODEL = (Drafter.NGRAM, Drafter.PROMPT_LOOKUP, Drafter.UNIFORM)
"""Those that need nothing at all."""
every_drafter = pytest.mark.parametrize("drafter", list(Drafter))
every_rule = pytest.mark.parametrize("rule", RULES)


def write_table(path: Path, vocab_size: int) -> str:
    """Counts of a random text."""
    corpus = np.random.default_rng(0).integers(vocab_size, size=10 * vocab_size)
    metadata = {"format": FORMAT, "vocab_size": str(vocab_size)}
    save_file(count_corpus(corpus, vocab_size)._asdict(), path, metadata=metadata)
    return str(path)


@dataclass(frozen=True)
class Served:
    pair: RunningPair
    model: Any
    """The target as transformers runs it."""


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A pair of four tokens, whose draft has everything that any drafter needs."""
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": distribution.VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.35}
    target, draft = make_model(folder / "target", seed=3, **shape), make_model(folder / "draft", seed=4, **shape)
    table = write_table(folder / "tables", distribution.VOCABULARY)
    async with running_pair(engine_config(target), replace(draft_config(draft), table=table)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.fixture
def repetitive_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "PROMPT", PROMPT)


async def p_values(served: Served, drafter: Drafter, options: SamplingOptions = SAMPLED, **fields: Any) -> list[float]:
    """Of the joint distributions of the first two and three tokens."""
    counts = await distribution.draw(served.pair, options, DRAWS, drafter=drafter_to_proto(drafter), **fields)
    return [distribution.p_value(counts, served.model, options, length) for length in (2, 3)]


async def generate(
    pair: RunningPair, drafter: Drafter | None, count: int, prompt: list[int], **fields: Any
) -> Generated:
    """What comes out, by K = 3 unless `fields` say otherwise."""
    values = {"num_speculative_tokens": 3, "ignore_eos": True, **fields}
    return await pair.generate(prompt, count, drafter=drafter_to_proto(drafter), **values)


@every_drafter
@every_rule
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution(served: Served, drafter: Drafter, rule: str) -> None:
    assert min(await p_values(served, drafter, rule=RULES[rule])) > 1e-3
    proof = await generate(served.pair, drafter, 30, PROMPT, rule=RULES[rule])
    assert proof.summary.speculation.draft_token_count > 5
    assert 0 < proof.summary.speculation.accepted_token_count < proof.summary.speculation.draft_token_count


@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.UNIFORM, Drafter.BIGRAM])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution_with_dense_rows(served: Served, drafter: Drafter) -> None:
    assert min(await p_values(served, drafter, rule=RULES["block"], encoding=ENCODINGS["dense"])) > 1e-3


@pytest.mark.parametrize("name", ["temperature", "banned_token_ids", "min_tokens", "several"])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution_under_options(served: Served, name: str) -> None:
    assert min(await p_values(served, Drafter.NGRAM, distribution.OPTIONS[name], rule=RULES["block"])) > 1e-3


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_noise_shared_with_the_target_is_seen(served: Served, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the drafter draws with the noise that acceptance is decided with."""
    monkeypatch.setattr(
        predicted_proposal, "draw_bits", lambda seed, _, step, at: draw_bits(seed, Domain.ACCEPT, step, at)
    )
    assert min(await p_values(served, Drafter.NGRAM, rule=RULES[rule])) < 1e-4


@pytest.mark.usefixtures("repetitive_prompt")
async def test_a_row_that_was_not_drawn_from_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the drafter takes its likeliest token, and sends the row all the same."""

    def heaviest(row: CountRow, bits: int) -> int:
        return row.token_ids[list(row.counts).index(max(row.counts))]

    monkeypatch.setattr(predicted_proposal, "draw_token", heaviest)
    assert min(await p_values(served, Drafter.NGRAM, rule=RULES["token"])) < 1e-4


@pytest.fixture(scope="module")
async def wide(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A pair of 64 tokens, with draft of everything."""
    folder = tmp_path_factory.mktemp("models")
    target, draft = make_model(folder / "target", seed=1), make_model(folder / "draft", seed=2)
    table = write_table(folder / "tables", 64)
    async with running_pair(engine_config(target), replace(draft_config(draft), table=table)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


PROMPTS = [[7], [1, 2, 3, 4] * 5, [9, 8, 7, 9, 8], list(range(40)), [5] * 12]


@every_drafter
async def test_greedy_output_is_that_without_speculation(wide: Served, drafter: Drafter) -> None:
    expected = [generate_greedily(wide.model, prompt, 24) for prompt in PROMPTS]
    accepted = 0
    for rule in RULES.values():
        for count in (1, 5):
            fields = {"temperature": 0, "rule": rule, "num_speculative_tokens": count}
            outputs = await asyncio.gather(*(generate(wide.pair, drafter, 24, prompt, **fields) for prompt in PROMPTS))
            assert [output.token_ids for output in outputs] == expected
            accepted += sum(output.summary.speculation.accepted_token_count for output in outputs)
    if drafter in (Drafter.NGRAM, Drafter.PROMPT_LOOKUP, Drafter.NGRAM_MODEL):
        assert accepted > 100, "tiny models go round in circles, which these must see"


@every_drafter
async def test_coupled_output_is_that_without_speculation(wide: Served, drafter: Drafter) -> None:
    fields = {"rule": RULES["coupled"], "seed": 11, "temperature": 0.8}
    for prompt in PROMPTS:
        alone = await generate(wide.pair, None, 24, prompt, **{**fields, "num_speculative_tokens": 0})
        assert (await generate(wide.pair, drafter, 24, prompt, **fields)).token_ids == alone.token_ids


async def test_the_coupled_noise_raises_acceptance(wide: Served) -> None:
    """The drafter chooses with the target's noise, from the row that it would draw from."""

    async def accepted(**fields: Any) -> int:
        outputs = await asyncio.gather(
            *(
                generate(wide.pair, Drafter.BIGRAM, 40, [seed], seed=seed, temperature=2.0, **fields)
                for seed in range(20)
            )
        )
        return sum(output.summary.speculation.accepted_token_count for output in outputs)

    of_coupled = await accepted(rule=RULES["coupled"])
    assert of_coupled > 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            predicted_proposal, "choose_among", lambda tokens, weights, seed, position: tokens[position % len(tokens)]
        )
        assert await accepted(rule=RULES["coupled"]) < of_coupled


# A draft service without a model.


@pytest.fixture
async def without_model() -> AsyncIterator[RunningModel]:
    config = DraftConfig(drafter=Drafter.NGRAM, max_model_len=40, max_num_seqs=2, max_num_speculative_tokens=6)
    async with running_draft(config) as draft:
        yield draft


@contextmanager
def refused(error: type[Exception], match: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The call is refused with this error."""
    with pytest.raises(error, match=match) as caught, peer_errors():
        yield caught


async def open_sequence(draft: RunningModel, name: str, tokens: list[int], **fields: Any) -> None:
    values = {"sampling": {"seed": 1, "temperature": 0.0}, "vocab_size": 10, **fields}
    await draft.sequences.OpenSequence(pb.OpenSequenceRequest(sequence_id=name, token_ids=tokens, **values))


async def close(draft: RunningModel, *names: str) -> None:
    for name in names:
        await draft.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))


async def propose(draft: RunningModel, name: str, step: int, base: int, count: int, **fields: Any) -> Any:
    return await draft.hot.ProposeTokens(
        draft_service_pb2.ProposeTokensRequest(
            sequence_id=name, step=step, base_length=base, num_speculative_tokens=count, **fields
        )
    )


async def test_without_a_model_it_says_so(without_model: RunningModel) -> None:
    info = model_info_from_proto(await without_model.sequences.GetModelInfo(pb.GetModelInfoRequest()))
    assert (info.model_name, info.architecture, info.parameter_count, info.vocab_size) == ("ngram", "none", 0, 0)
    assert (info.max_model_len, info.max_num_seqs, info.max_num_speculative_tokens) == (40, 2, 6)
    assert info.drafters == WITHOUT_MODEL
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await without_model.sequences.GetTokenizer(pb.GetTokenizerRequest()).read()
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_with_a_model_it_names_all_that_can_propose(served: Served) -> None:
    assert served.pair.draft is not None
    info = model_info_from_proto(await served.pair.draft.sequences.GetModelInfo(pb.GetModelInfoRequest()))
    assert info.drafters == tuple(Drafter)
    assert info.vocab_size == distribution.VOCABULARY


async def test_drafters_that_are_not_there_are_refused(without_model: RunningModel) -> None:
    for drafter, needs in ((Drafter.MODEL, "a draft model"), (Drafter.BIGRAM, "a table of counts")):
        with refused(InvalidFieldError, f"drafter: {drafter} needs {needs}, and there is none; there are ngram, ") as e:
            await open_sequence(without_model, "s", [1], drafter=drafter_to_proto(drafter))
        assert e.value.metadata["available"] == "ngram, prompt-lookup, uniform"
    with refused(InvalidFieldError, "drafter: 77 is no Drafter"):
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
    with refused(InvalidFieldError, "encoding: is dense, for which a vocabulary of 268435456 is too large"):
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


async def test_ids_beyond_the_targets_are_not_proposed(wide: Served) -> None:
    """The model's vocabulary may be padded further; its drafters keep to the target's."""
    draft = wide.pair.draft
    assert draft is not None
    for drafter in Drafter:
        await open_sequence(draft, "s", [1, 2, 63, 1, 2], vocab_size=3, drafter=drafter_to_proto(drafter))
        proposed = (await propose(draft, "s", 0, 5, 5)).proposal.token_ids
        assert proposed or drafter in (Drafter.NGRAM, Drafter.PROMPT_LOOKUP)
        assert all(token < 3 for token in proposed)
        await close(draft, "s")


async def test_the_chain_names_the_link_that_proposed(wide: Served) -> None:
    draft = wide.pair.draft
    assert draft is not None
    await open_sequence(draft, "s", [1, 2, 3], drafter=drafter_to_proto(Drafter.NGRAM_MODEL), vocab_size=64)
    by_model = await propose(draft, "s", 0, 3, 2)
    by_ngrams = await propose(draft, "s", 1, 3, 2, appended_token_ids=[1, 2])
    again_by_model = await propose(draft, "s", 2, 5, 2, appended_token_ids=[9])
    await close(draft, "s")
    assert [r.drafter for r in (by_model, by_ngrams, again_by_model)] == [
        drafter_to_proto(drafter) for drafter in (Drafter.MODEL, Drafter.NGRAM, Drafter.MODEL)
    ]
    assert [r.batch_size for r in (by_model, by_ngrams, again_by_model)] == [1, 0, 1]
    plain = load_plain_draft(draft)
    assert list(by_ngrams.proposal.token_ids) == [3, 1]
    assert list(again_by_model.proposal.token_ids) == generate_greedily(plain, [1, 2, 3, 1, 2, 9], 2)


def load_plain_draft(draft: RunningModel) -> Any:
    assert isinstance(draft.host, DraftHost) and draft.host.model is not None
    return load_plain(Path(draft.host.model.config.model))


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@every_rule
async def test_the_model_stops_where_it_is_unsure(wide: Served, rule: str, temperature: float) -> None:
    """Behind the first tokens to which it gives together too little at temperature 1; what it draws stays the same."""
    draft = wide.pair.draft
    assert draft is not None
    plain = load_plain_draft(draft)
    lengths = set()
    for seed in range(6):
        fields = {"sampling": {"seed": seed, "temperature": temperature}, "rule": RULES[rule], "vocab_size": 64}
        await open_sequence(draft, "s", [seed, 2, 3], **fields)
        whole = list((await propose(draft, "s", 0, 3, 6)).proposal.token_ids)
        for step, least in enumerate((0.03, 0.3, 0.9), start=1):
            await close(draft, "s")
            await open_sequence(draft, "s", [seed, 2, 3], **fields)
            # The step is the key of the draws, so it stays the same.
            stopped = list((await propose(draft, "s", 0, 3, 6, min_confidence=least)).proposal.token_ids)
            assert stopped == whole[: believed_in(plain, [seed, 2, 3], whole, least)], step
            lengths.add(len(stopped))
        await close(draft, "s")
    assert len(lengths) > 1


def believed_in(model: Any, prompt: list[int], tokens: list[int], least: float) -> int:
    confidence = 1.0
    for i, token in enumerate(tokens):
        logits = last_logits(model, [*prompt, *tokens[:i]])
        confidence *= float(np.exp(logits[token] - logits.max()) / np.exp(logits - logits.max()).sum())
        if confidence < least:
            return i + 1
    return len(tokens)


async def test_a_stop_saves_the_next_forward_pass(wide: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = wide.pair.draft
    assert draft is not None
    runner: Any = draft.host.engine._turns.runner
    passes = []
    forward = runner.forward
    monkeypatch.setattr(runner, "forward", lambda batch: passes.append(batch) or forward(batch))
    await open_sequence(draft, "s", [1, 2, 3], vocab_size=64, sampling={"seed": 3, "temperature": 5.0})
    assert len((await propose(draft, "s", 0, 3, 4, min_confidence=1.0)).proposal.token_ids) == 1
    before = len(passes)
    await propose(draft, "s", 1, 3, 4, min_confidence=1.0)
    assert len(passes) == before + 1
    await propose(draft, "s", 2, 3, 4)
    assert len(passes) == before + 5
    await close(draft, "s")


# Without a model, to the end.


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
