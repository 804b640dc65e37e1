"""Under the coupled rule the output depends on prompt, options and seed alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from specpair.options import SamplingOptions
from specpair.v1 import draft_service_pb2, proposal_pb2, sampling_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.reference import coupled_choice, plain_loop
from tests.services import RunningPair, engine_config, running_pair, running_target
from tests.tiny_models import load_plain, make_model, make_variation

BUNDLED = Path(__file__).parents[2] / "models" / "bundled"
VOCABULARY = 100
PROMPT = [5, 2, 7, 2, 11]
COUNT = 24
COUPLED = sampling_pb2.ACCEPTANCE_RULE_COUPLED
SEEDS = range(8)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("target"), seed=1, vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
async def pairs(target: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, RunningPair]]:
    """One target with a draft much like it, with a random one, and with none."""
    folder = tmp_path_factory.mktemp("drafts")
    alike = make_variation(folder / "alike", target, spread=0.03)
    random = make_model(folder / "random", seed=2, vocab_size=VOCABULARY)
    drafts = {"alike": engine_config(alike), "random": engine_config(random), "none": None}
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(running_pair(engine_config(target), draft))
            for name, draft in drafts.items()
        }


async def generate(pair: RunningPair, seed: int, k: int) -> list[int]:
    output = await pair.generate(PROMPT, COUNT, seed=seed, rule=COUPLED, num_speculative_tokens=k)
    return output.token_ids


async def test_tokens_depend_on_neither_draft_nor_k_nor_company(target: Path, pairs: dict[str, RunningPair]) -> None:
    model = load_plain(target)
    expected = [plain_loop(model, PROMPT, SamplingOptions(seed=seed), COUNT, coupled_choice(seed)) for seed in SEEDS]
    for name, pair in pairs.items():
        for k in (0, 1, 3, 8):
            together = await asyncio.gather(*(generate(pair, seed, k) for seed in [*SEEDS, *range(100, 109)]))
            assert together[: len(SEEDS)] == expected, (name, k)
        assert await generate(pair, 0, 5) == expected[0], name
        await pair.check_clean()


async def test_the_likeness_of_the_draft_shows_in_acceptance_alone(pairs: dict[str, RunningPair]) -> None:
    rates = {}
    for name in ("alike", "random"):
        outputs = [
            await pairs[name].generate(PROMPT, COUNT, seed=seed, rule=COUPLED, num_speculative_tokens=2)
            for seed in SEEDS
        ]
        rates[name] = sum(output.summary.speculation.accepted_token_count for output in outputs)
    assert rates["alike"] > 1.5 * rates["random"]


async def test_no_distributions_travel(pairs: dict[str, RunningPair]) -> None:
    draft = pairs["alike"].draft
    assert draft is not None
    await draft.sequences.OpenSequence(
        pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 3}, rule=COUPLED)
    )
    response = await draft.hot.ProposeTokens(
        draft_service_pb2.ProposeTokensRequest(sequence_id="s", step=1, base_length=5, num_speculative_tokens=4)
    )
    assert len(response.proposal.token_ids) == 4
    assert not response.proposal.HasField("distributions")
    await draft.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))


async def test_a_lost_sequence_goes_on_where_it_was(target: Path) -> None:
    """Opened again from the middle, with other steps: the position alone keys the noise."""
    async with running_target(engine_config(target)) as running:
        expected = plain_loop(load_plain(target), PROMPT, SamplingOptions(seed=4), 12, coupled_choice(4))
        for cut in (0, 3, 7):
            tokens = [*PROMPT, *expected[:cut]]
            await running.sequences.OpenSequence(
                pb.OpenSequenceRequest(
                    sequence_id="s", token_ids=tokens, prompt_length=5, sampling={"seed": 4}, rule=COUPLED
                )
            )
            for step in range(len(expected) - cut):
                request = target_service_pb2.VerifyProposalRequest(
                    sequence_id="s",
                    step=1000 * cut + 7 * step,
                    base_length=len(tokens),
                    proposal=proposal_pb2.Proposal(token_ids=[(expected[cut + step] + 1) % VOCABULARY]),
                )
                answers = [await running.hot.VerifyProposal(request) for _ in range(2)]
                assert answers[0] == answers[1]
                tokens.append(answers[0].next_token_id)
            assert tokens[len(PROMPT) :] == expected
            await running.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))


@pytest.mark.few_cases()
async def test_the_bundled_target_writes_the_same_with_any_draft(tmp_path: Path) -> None:
    """Deterministic, so that no near-tie can part the outputs: alone, and among 16 others."""
    target = engine_config(BUNDLED / "target", deterministic=True, max_model_len=256)
    random = make_model(tmp_path, seed=2, vocab_size=4096)
    drafts = [engine_config(BUNDLED / "draft", max_model_len=256), engine_config(random), None]
    outputs: list[list[list[int]]] = []
    for draft in drafts:
        async with running_pair(target, draft) as pair:
            for k in (0, 1, 3, 8) if draft else (0,):
                outputs.append([await generate(pair, seed, k) for seed in (1, 2)])
            others = (generate(pair, seed, 3) for seed in range(100, 116))
            together = await asyncio.gather(generate(pair, 1, 3), generate(pair, 2, 3), *others)
            outputs.append(together[:2])
    assert all(output == outputs[0] for output in outputs)
