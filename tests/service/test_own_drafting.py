"""A target with a head proposes with its verdicts: no draft service is asked, and the output is the target's own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from specpair.errors import InvalidDistributionError, InvalidFieldError, NotSupportedError, SequenceNotFoundError
from specpair.options import Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.rpc.status import peer_errors
from specpair.speculation.randomness import Domain
from specpair.v1 import proposal_pb2
from specpair.v1 import sequence_service_pb2 as sequences_pb
from specpair.v1 import target_service_pb2 as pb
from target_service import own_proposal, self_drafting, verifier
from tests.service import distributions as distribution
from tests.service.distributions import ENOUGH_FOR_CONTROLS, RULES, SAMPLES, Served, check_distribution, draw, p_value
from tests.services import RunningModel, engine_config, running_pair, running_target
from tests.tiny_heads import make_head
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPTS = [[7], [1, 2, 3, 4] * 5, [9, 8, 7, 9, 8], list(range(40))]
EAGLE = drafter_to_proto(Drafter.EAGLE)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A target with a head, without any draft."""
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target")
    async with running_pair(engine_config(target, head=str(make_head(folder / "head")))) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The same with four tokens, so that whole outputs can be counted."""
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": distribution.VOCABULARY, "num_hidden_layers": 3, "initializer_range": 0.35}
    target = make_model(folder / "target", seed=3, **shape)
    head = make_head(folder / "head", vocab_size=distribution.VOCABULARY)
    async with running_pair(engine_config(target, head=str(head))) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


async def test_a_head_may_propose_as_many_tokens_as_the_limit_says(tmp_path: Path) -> None:
    config = engine_config(make_model(tmp_path / "target"), head=str(make_head(tmp_path / "head")))
    async with running_pair(config, max_num_speculative_tokens=3) as pair:
        made = await pair.generate([7], 30, temperature=0.0, num_speculative_tokens=3, ignore_eos=True)
        assert len(made.summary.speculation.drafted_per_position) == 3
        first = made.summary.speculation.drafted_per_position[0]
        assert made.summary.speculation.drafted_per_position[2] >= first - 3, "but where the output ends"
        await pair.check_clean()


@pytest.mark.parametrize("count", [1, 3, 8, None])
async def test_greedy_output_is_the_targets_own(served: Served, count: int | None) -> None:
    fields = {} if count is None else {"num_speculative_tokens": count}
    for prompt in PROMPTS:
        made = await served.pair.generate(prompt, 30, temperature=0.0, drafter=EAGLE, ignore_eos=True, **fields)
        assert made.token_ids == generate_greedily(served.model, prompt, 30)
        if count is not None:
            assert made.summary.speculation.draft_token_count > 0


async def test_coupled_output_is_that_without_proposals(served: Served) -> None:
    for seed, prompt in enumerate(PROMPTS):
        options: dict[str, Any] = {"rule": RULES["coupled"], "seed": seed, "ignore_eos": True, "drafter": EAGLE}
        plain = await served.pair.generate(prompt, 30, **options, num_speculative_tokens=0)
        drafted = await served.pair.generate(prompt, 30, **options, num_speculative_tokens=4)
        assert drafted.token_ids == plain.token_ids
        assert drafted.summary.speculation.draft_token_count > 0 == plain.summary.speculation.draft_token_count


@pytest.mark.few_cases("block-options3-dense")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "options", "encoding"),
    [
        ("token", SamplingOptions(), "sparse"),
        ("block", SamplingOptions(), "sparse"),
        ("coupled", SamplingOptions(), "sparse"),
        ("block", SamplingOptions(), "dense"),
        ("token", distribution.OPTIONS["several"], "sparse"),
    ],
)
async def test_sampled_output_is_distributed_as_the_targets_own(
    small: Served, rule: str, options: SamplingOptions, encoding: str
) -> None:
    fields = {"rule": RULES[rule], "encoding": distribution.ENCODINGS[encoding], "drafter": EAGLE}
    await check_distribution(small, options, SAMPLES, **fields)


async def test_proposals_are_used(small: Served) -> None:
    made = await small.pair.generate([1, 2, 0], 40, drafter=EAGLE, num_speculative_tokens=3, ignore_eos=True)
    assert made.summary.speculation.accepted_token_count > 5


@contextmanager
def acceptance_noise_for_the_head() -> Iterator[None]:
    """Draws the head's tokens with the noise that then decides on their acceptance."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("specpair.drafting.Domain", type("Wrong", (), {"DRAFT": Domain.ACCEPT}))
        yield


@contextmanager
def other_distributions() -> Iterator[None]:
    """Keeps distributions that the tokens were not drawn from: those with the probabilities in reverse."""
    whole = own_proposal.OwnProposal.beginning

    def reversed_rows(own: Any, step: int, length: int, token_ids: list[int]) -> Any:
        rows = whole(own, step, length, token_ids).padded
        return rows._replace(probabilities=rows.probabilities[:, ::-1])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own_proposal.OwnProposal, "beginning", reversed_rows)
        yield


@pytest.mark.parametrize("broken", [acceptance_noise_for_the_head, other_distributions])
async def test_broken_drafting_shows(small: Served, broken: Any) -> None:
    with broken():
        counts = await draw(small.pair, SamplingOptions(), ENOUGH_FOR_CONTROLS, rule=RULES["token"], drafter=EAGLE)
    assert min(p_value(counts, small.model, SamplingOptions(), length) for length in (2, 3, 4)) < 1e-3


async def test_several_outputs_of_a_prompt_fork(served: Served) -> None:
    async def tokens(count: int) -> list[int]:
        made = await served.pair.generate(
            PROMPTS[1],
            12,
            n=3,
            seed=5,
            rule=RULES["coupled"],
            drafter=EAGLE,
            num_speculative_tokens=count,
            ignore_eos=True,
        )
        return sorted(made.token_ids)

    assert await tokens(3) == await tokens(0)


@pytest.mark.parametrize(("broken", "options"), [("take_all", {}), ("draw_next", {"banned_token_ids": [63]})])
async def test_a_failing_head_costs_no_token(
    served: Served, monkeypatch: pytest.MonkeyPatch, broken: str, options: dict[str, Any]
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(self_drafting, broken, fail)
    made = await served.pair.generate(
        PROMPTS[1], 10, temperature=0.0, drafter=EAGLE, num_speculative_tokens=3, ignore_eos=True, **options
    )
    assert made.token_ids == generate_greedily(served.model, PROMPTS[1], 10)
    assert made.summary.speculation.draft_token_count == 0


async def test_a_target_that_forgot_its_proposal_gives_a_plain_round(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was restarted: it knows the tokens, and not what they were drawn from."""
    with_kept = verifier.with_kept
    monkeypatch.setattr(verifier, "with_kept", lambda own, call: with_kept(None, call))
    made = await served.pair.generate(PROMPTS[1], 12, drafter=EAGLE, num_speculative_tokens=3, ignore_eos=True)
    assert len(made.token_ids) == 12
    assert made.summary.speculation.draft_token_count == 0


async def test_without_a_head_the_drafter_is_refused(tmp_path: Path) -> None:
    async with running_pair(engine_config(make_model(tmp_path))) as pair:
        with pytest.raises(InvalidFieldError, match="no such head"), peer_errors():
            await pair.generate([1], 3, drafter=EAGLE)


# The contract, call by call.


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[RunningModel]:
    head = make_head(tmp_path / "head")
    async with running_target(engine_config(make_model(tmp_path / "target"), head=str(head))) as target:
        yield target
        await target.sequences.CloseSequence(sequences_pb.CloseSequenceRequest(sequence_id="s"))
        await target.check_clean()


async def open_sequence(target: RunningModel, **sampling: Any) -> None:
    request = sequences_pb.OpenSequenceRequest(sequence_id="s", token_ids=[1, 2, 3], sampling={"seed": 1, **sampling})
    await target.sequences.OpenSequence(request)


async def verify(target: RunningModel, step: int, length: int, **fields: Any) -> pb.VerifyProposalResponse:
    request = pb.VerifyProposalRequest(sequence_id="s", step=step, base_length=length, **fields)
    with peer_errors():
        return await target.hot.VerifyProposal(request)


async def test_a_repeated_call_has_the_same_proposal(target: RunningModel) -> None:
    await open_sequence(target)
    first = await verify(target, 0, 3, next_proposal_count=4)
    assert len(first.next_proposal.token_ids) == 4
    assert first.next_proposal.distributions.kept.step == 0
    again = await verify(target, 0, 3, next_proposal_count=4)
    assert again.next_proposal == first.next_proposal
    judged = await verify(target, 1, 4, proposal=first.next_proposal, next_proposal_count=2)
    assert await verify(target, 1, 4, proposal=first.next_proposal, next_proposal_count=2) == judged


async def test_the_beginning_of_a_proposal_may_be_repeated(target: RunningModel) -> None:
    await open_sequence(target)
    proposal = (await verify(target, 0, 3, next_proposal_count=4)).next_proposal
    del proposal.token_ids[2:]
    assert (await verify(target, 1, 4, proposal=proposal)).accepted_count <= 2


async def test_another_proposal_than_the_kept_one_is_refused_and_changes_nothing(target: RunningModel) -> None:
    await open_sequence(target)
    proposal = (await verify(target, 0, 3, next_proposal_count=4)).next_proposal
    other_tokens, other_step = proposal_pb2.Proposal(), proposal_pb2.Proposal()
    for changed in (other_tokens, other_step):
        changed.CopyFrom(proposal)
    other_tokens.token_ids[0] = (other_tokens.token_ids[0] + 1) % 64
    other_step.distributions.kept.step = 5
    for wrong in (other_tokens, other_step):
        with pytest.raises(InvalidDistributionError, match="not here"):
            await verify(target, 1, 4, proposal=wrong)
    with pytest.raises(InvalidDistributionError, match="not here"):
        await verify(target, 1, 3, proposal=proposal)
    await verify(target, 1, 4, proposal=proposal)


async def test_certain_tokens_need_nothing_that_is_kept(target: RunningModel) -> None:
    await open_sequence(target, temperature=0.0)
    proposal = (await verify(target, 0, 3, next_proposal_count=4)).next_proposal
    assert not proposal.HasField("distributions")
    await verify(target, 1, 4, proposal=proposal)


@pytest.mark.parametrize("cache", ["paged", "contiguous"])
async def test_after_a_path_of_a_tree_it_proposes_what_it_does_after_a_chain(tmp_path: Path, cache: str) -> None:
    """The path is not moved together in the cache yet."""
    folder, head = make_model(tmp_path / "target"), make_head(tmp_path / "head")
    first, second = generate_greedily(load_plain(folder), [1, 2, 3], 2)
    chain = proposal_pb2.Proposal(token_ids=[first, second])
    wrong = (first + 1) % 64
    tree = proposal_pb2.Proposal(token_ids=[wrong, first, wrong, second], parent_indices=[-1, -1, 1, 1])
    found = []
    for proposal in (chain, tree):
        async with running_target(engine_config(folder, head=str(head), cache=cache)) as target:
            await open_sequence(target, temperature=0.0)
            answer = await verify(target, 0, 3, proposal=proposal, next_proposal_count=6)
            assert answer.accepted_count == 2
            found.append(list(answer.next_proposal.token_ids))
    assert found[0] == found[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_proposal_ends_where_the_head_is_unsure(target: RunningModel, temperature: float) -> None:
    await open_sequence(target, temperature=temperature)
    whole = (await verify(target, 0, 3, next_proposal_count=4)).next_proposal
    await verify(target, 1, 4)
    ended = (await verify(target, 2, 5, next_proposal_count=4, next_proposal_min_confidence=0.99)).next_proposal
    assert (len(whole.token_ids), len(ended.token_ids)) == (4, 1)
    judged = await verify(target, 3, 6, proposal=ended, next_proposal_count=2, next_proposal_min_confidence=1e-9)
    assert len(judged.next_proposal.token_ids) == 2
    with pytest.raises(InvalidFieldError, match="next_proposal_min_confidence"):
        await verify(target, 4, judged.length, next_proposal_count=1, next_proposal_min_confidence=1.5)


async def test_who_asks_for_no_proposal_gets_none(target: RunningModel) -> None:
    await open_sequence(target)
    assert not (await verify(target, 0, 3)).HasField("next_proposal")
    assert (await verify(target, 1, 4, next_proposal_count=2)).HasField("next_proposal")
    assert not (await verify(target, 2, 5)).HasField("next_proposal")


async def test_a_target_without_a_head_says_so(tmp_path: Path) -> None:
    async with running_target(engine_config(make_model(tmp_path))) as target:
        await open_sequence(target)
        with pytest.raises(NotSupportedError, match="no head"):
            await verify(target, 0, 3, next_proposal_count=1)
        await verify(target, 0, 3)
        await target.sequences.CloseSequence(sequences_pb.CloseSequenceRequest(sequence_id="s"))
        with pytest.raises(SequenceNotFoundError):  # as after a restart, so that the caller opens it again
            await verify(target, 1, 4, next_proposal_count=1)
