"""Whatever head a target drafts by, the output is the target's own: Medusa, blockwise, PaSS and MTP."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from specpair.errors import InvalidFieldError, NotSupportedError, SequenceNotFoundError
from specpair.options import Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.rpc.status import peer_errors
from specpair.v1.proposal_pb2 import Proposal
from specpair.v1.sampling_pb2 import SamplingOptions as SamplingMessage
from specpair.v1.sequence_service_pb2 import CloseSequenceRequest, OpenSequenceRequest
from specpair.v1.target_service_pb2 import VerifyProposalRequest
from tests.service import distributions as distribution
from tests.service.distributions import FEWER, RULES, Served, draw, p_value
from tests.services import engine_config, running_pair, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model
from tests.tiny_target_heads import make_lookahead, make_medusa, make_mtp_target

PROMPTS = [[7], [1, 2, 3, 4] * 5, [9, 8, 7, 9, 8], list(range(40))]


def make_nothing(folder: Path) -> str:
    """The head is in the target's checkpoint."""
    return "mtp"


def make_target(kind: str, folder: Path, **changes: Any) -> Path:
    """A tiny target for a kind of head."""
    if kind == "mtp":
        return make_mtp_target(folder, vocab_size=changes.get("vocab_size", 64))
    return make_model(folder, **changes)


KINDS: dict[str, tuple[Callable[[Path], Path | str], tuple[Drafter, ...]]] = {
    "medusa": (make_medusa, (Drafter.MEDUSA, Drafter.BLOCKWISE)),
    "pass": (make_lookahead, (Drafter.PASS,)),
    "mtp": (make_nothing, (Drafter.MTP,)),
}
SAMPLED = [(Drafter.MEDUSA, "token"), (Drafter.MEDUSA, "block"), (Drafter.BLOCKWISE, "token"), (Drafter.PASS, "token")]


@pytest.fixture(scope="module", params=KINDS)
async def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A kind of head, with a target that has one and no draft."""
    folder = tmp_path_factory.mktemp("models")
    target, head = make_target(request.param, folder / "target"), KINDS[request.param][0](folder / "head")
    async with running_pair(engine_config(target, head=str(head))) as pair:
        yield request.param, Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.fixture(scope="module", params=KINDS)
async def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """The same with four tokens, so that whole outputs can be counted."""
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": distribution.VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.35}
    target = make_target(request.param, folder / "target", seed=3, **shape)
    head = KINDS[request.param][0](folder / "head")
    async with running_pair(engine_config(target, head=str(head))) as pair:
        yield request.param, Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.mark.few_cases("medusa", "pass")
async def test_greedy_output_is_the_targets_own(kind: tuple[str, Served]) -> None:
    name, served = kind
    for drafter in (None, *KINDS[name][1]):
        for prompt, count in zip(PROMPTS, (1, 3, 8, None), strict=True):
            fields = {} if count is None else {"num_speculative_tokens": count}
            fields |= {} if drafter is None else {"drafter": drafter_to_proto(drafter)}
            made = await served.pair.generate(prompt, 30, temperature=0.0, ignore_eos=True, **fields)
            assert made.token_ids == generate_greedily(served.model, prompt, 30)
            if count is not None:
                assert made.summary.speculation.draft_token_count > 0


async def test_coupled_output_is_that_without_proposals(kind: tuple[str, Served]) -> None:
    name, served = kind
    for drafter in KINDS[name][1]:
        for seed, prompt in enumerate(PROMPTS):
            options: dict[str, Any] = {"rule": RULES["coupled"], "seed": seed, "ignore_eos": True}
            options["drafter"] = drafter_to_proto(drafter)
            plain = await served.pair.generate(prompt, 30, **options, num_speculative_tokens=0)
            drafted = await served.pair.generate(prompt, 30, **options, num_speculative_tokens=4)
            assert drafted.token_ids == plain.token_ids
            assert drafted.summary.speculation.draft_token_count > 0 == plain.summary.speculation.draft_token_count


@pytest.mark.few_cases("medusa")
async def test_sampled_output_is_distributed_as_the_targets_own(small: tuple[str, Served]) -> None:
    name, served = small
    for drafter, rule in SAMPLED:
        if drafter in KINDS[name][1]:
            fields = {"rule": RULES[rule], "drafter": drafter_to_proto(drafter)}
            samples = FEWER * 2 if drafter is Drafter.MEDUSA else FEWER
            counts = await draw(served.pair, SamplingOptions(), samples, **fields)
            for length in (2, 3, 4):
                assert p_value(counts, served.model, SamplingOptions(), length) > 1e-3, f"{drafter}, {length} tokens"


async def test_proposals_are_used(small: tuple[str, Served]) -> None:
    """Of four tokens one in four is right by chance: 600 proposed tokens leave none to it that none is accepted."""
    name, served = small
    for drafter in KINDS[name][1]:
        accepted = 0
        for seed in range(5):
            fields = {"num_speculative_tokens": 3, "ignore_eos": True, "seed": seed}
            made = await served.pair.generate([1, 2, 0], 60, drafter=drafter_to_proto(drafter), **fields)
            accepted += made.summary.speculation.accepted_token_count
        assert accepted > 15


async def test_a_target_that_was_restarted_goes_on(kind: tuple[str, Served]) -> None:
    """It knows neither the sequence nor what its last proposal was drawn from, and is given the tokens again."""
    name, served = kind
    host: Any = served.pair.target.host
    whole = host.sequences.taken
    calls = 0

    def taken(sequence_id: str, step: int) -> Any:
        """Asked for each call, also where the target has gone on to its step by itself."""
        nonlocal calls
        calls += 1
        if calls in (5, 10):
            for held in list(host.sequences._held.values()):
                host.sequences.drop(held)
            raise SequenceNotFoundError(sequence_id)
        return whole(sequence_id, step)

    for drafter in KINDS[name][1]:
        for options in ({"temperature": 0.0}, {"rule": RULES["coupled"], "seed": 4}, {"rule": RULES["block"]}):
            fields: dict[str, Any] = {**options, "drafter": drafter_to_proto(drafter), "ignore_eos": True}
            plain = await served.pair.generate(PROMPTS[1], 20, **fields, num_speculative_tokens=0)
            calls, host.sequences.taken = 0, taken
            try:
                made = await served.pair.generate(PROMPTS[1], 20, **fields, num_speculative_tokens=2)
            finally:
                host.sequences.taken = whole
            assert calls > 12
            assert len(made.token_ids) == 20
            if options.get("rule") != RULES["block"]:
                assert made.token_ids == plain.token_ids


async def test_a_blockwise_proposal_is_certain_and_a_medusa_proposal_is_kept(tmp_path: Path) -> None:
    """Whatever the temperature: the likeliest tokens of the heads, which need nothing that is kept."""
    target, head = make_model(tmp_path / "target"), make_medusa(tmp_path / "head")
    proposals: dict[tuple[Drafter, int], Proposal] = {}
    async with running_target(engine_config(target, head=str(head))) as running:
        for drafter in (Drafter.BLOCKWISE, Drafter.MEDUSA):
            for seed in range(6):
                name, sampling = f"{drafter}-{seed}", SamplingMessage(seed=seed, temperature=1.0)
                await running.sequences.OpenSequence(
                    OpenSequenceRequest(
                        sequence_id=name, token_ids=[1, 2, 3], sampling=sampling, drafter=drafter_to_proto(drafter)
                    )
                )
                request = VerifyProposalRequest(sequence_id=name, base_length=3, next_proposal_count=4)
                proposals[drafter, seed] = (await running.hot.VerifyProposal(request)).next_proposal
                await running.sequences.CloseSequence(CloseSequenceRequest(sequence_id=name))
    blockwise = {tuple(proposals[Drafter.BLOCKWISE, seed].token_ids) for seed in range(6)}
    medusa = {tuple(proposals[Drafter.MEDUSA, seed].token_ids) for seed in range(6)}
    assert len(blockwise) == 1 < len(medusa)
    for (drafter, _), proposal in proposals.items():
        assert proposal.HasField("distributions") == (drafter is Drafter.MEDUSA)


async def test_a_tree_from_a_head_is_refused(kind: tuple[str, Served]) -> None:
    """Whoever names no drafter gets a chain: a tree was asked of what proposes, if that can."""
    name, served = kind
    for drafter in KINDS[name][1]:
        with pytest.raises(NotSupportedError, match="--head-tree-tokens"), peer_errors():
            await served.pair.generate([1], 3, drafter=drafter_to_proto(drafter), num_tree_tokens=4)
    made = await served.pair.generate(PROMPTS[0], 20, temperature=0.0, num_tree_tokens=4, ignore_eos=True)
    assert made.token_ids == generate_greedily(served.model, PROMPTS[0], 20)


async def test_a_drafter_that_the_target_lacks_is_refused(kind: tuple[str, Served]) -> None:
    name, served = kind
    others = {Drafter.EAGLE, Drafter.MEDUSA, Drafter.BLOCKWISE, Drafter.PASS, Drafter.MTP} - {*KINDS[name][1]}
    for drafter in others:
        with pytest.raises(InvalidFieldError, match="no such head"), peer_errors():
            await served.pair.generate([1], 3, drafter=drafter_to_proto(drafter))
