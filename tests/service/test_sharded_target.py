"""A target on two ranks gives the tokens that it gives on one: every rule, rollback, forks, trees.

Each group is this process and one more, over gloo.
"""

import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command.exactness.run import describe, verify
from specpair.client import channel as client
from specpair.exactness.plan import Settings
from specpair.models.sharded_runner import ShardedRunner
from specpair.options import SamplingOptions
from specpair.v1 import sampling_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from tests.reference import coupled_choice, plain_loop
from tests.service.test_engine_faults import close, open_sequence
from tests.service.test_engine_faults import verify as next_token
from tests.service.test_verify_exactness import no_show
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model, make_variation

pytestmark = pytest.mark.timeout(300)

VOCABULARY = 64
COUNT = 24
LAYER = 1
PROMPTS = [[5, 2, 7, 2, 11], [3], [random.Random(0).randrange(VOCABULARY) for _ in range(40)]]
COUPLED = sampling_pb2.ACCEPTANCE_RULE_COUPLED
RULES = [sampling_pb2.ACCEPTANCE_RULE_TOKEN, sampling_pb2.ACCEPTANCE_RULE_BLOCK, COUPLED]
DETERMINISTIC = "qwen3"
"""One of the two computes in fixed shapes."""


@dataclass(frozen=True)
class Served:
    kind: str
    folder: Path
    sharded: RunningPair
    whole: RunningPair


@pytest.fixture(scope="module", params=["llama", DETERMINISTIC])
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The same target on two ranks and whole, each with the same draft."""
    kind: str = request.param
    folder = make_model(tmp_path_factory.mktemp("target"), kind, seed=1, vocab_size=VOCABULARY)
    draft = engine_config(make_variation(tmp_path_factory.mktemp("draft"), folder, spread=0.05))
    options: dict[str, Any] = {"threads": 1, "deterministic": kind == DETERMINISTIC, "num_blocks": 256}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "PING_TIMEOUT_MS", 30_000)  # a busy machine may stop this process for a second
        async with AsyncExitStack() as stack:
            pairs = [
                await stack.enter_async_context(
                    running_pair(
                        engine_config(folder, tensor_parallel_size=ranks, **options), draft, draft_timeout=60.0
                    )
                )
                for ranks in (2, 1)
            ]
            yield Served(kind, folder, *pairs)
            for pair in pairs:
                await pair.check_clean()
            other = followers(pairs[0])
            assert len(other) == 1 and all(is_running(process) for process in other)
    assert not any(is_running(process) for process in other), "a rank has outlived its leader"


def followers(pair: RunningPair) -> list[int]:
    """Process ids of the ranks that the target started."""
    runner: Any = pair.target.host.engine._turns.runner
    assert isinstance(runner, ShardedRunner) and runner._ranks is not None
    return [child.pid for child in runner._ranks._children]


def is_running(process: int) -> bool:
    return os.path.exists(f"/proc/{process}/stat")


@pytest.mark.few_cases("llama")
async def test_greedy_equals_generate(served: Served) -> None:
    plain = load_plain(served.folder)
    accepted = 0
    for prompt in PROMPTS:
        expected = generate_greedily(plain, prompt, COUNT)
        for count in (0, 1, 4):
            output = await served.sharded.generate(prompt, COUNT, temperature=0, num_speculative_tokens=count)
            assert output.token_ids == expected, count
            accepted += output.summary.speculation.accepted_token_count
    assert accepted > COUNT, "next to nothing was accepted: the test says little"


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("seed", range(3))
async def test_coupled_depends_on_the_seed_alone(served: Served, seed: int) -> None:
    model = load_plain(served.folder)
    expected = plain_loop(model, PROMPTS[0], SamplingOptions(seed=seed), COUNT, coupled_choice(seed))
    for count in (0, 3):
        output = await served.sharded.generate(PROMPTS[0], COUNT, seed=seed, rule=COUPLED, num_speculative_tokens=count)
        assert output.token_ids == expected, count


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("rule", RULES)
async def test_every_rule_gives_what_it_gives_on_one_rank(served: Served, rule: Any) -> None:
    wanted: dict[str, Any] = {"rule": rule, "num_speculative_tokens": 3, "top_p": 0.95}
    for seed in range(3):
        outputs = [
            await pair.generate(PROMPTS[0], COUNT, seed=seed, **wanted) for pair in (served.sharded, served.whole)
        ]
        assert outputs[0].token_ids == outputs[1].token_ids, seed


async def test_trees_and_several_outputs(served: Served) -> None:
    """Paths are moved together in the caches of both ranks; outputs of one prompt share and copy blocks."""
    if served.kind == DETERMINISTIC:
        pytest.skip("it runs no trees")
    for rule in (COUPLED, sampling_pb2.ACCEPTANCE_RULE_TOKEN):
        wanted: dict[str, Any] = {"rule": rule, "num_speculative_tokens": 3, "num_tree_tokens": 8, "n": 2}
        outputs = [await pair.generate(PROMPTS[0], COUNT, seed=4, **wanted) for pair in (served.sharded, served.whole)]
        assert sorted(outputs[0].token_ids) == sorted(outputs[1].token_ids)
        assert outputs[0].summary.speculation.accepted_token_count > 0


async def test_beam_search(served: Served) -> None:
    """Trees of beams are rows of passes on all ranks, and leave both caches together."""
    if served.kind == DETERMINISTIC:
        pytest.skip("it runs no trees")
    for prompt in PROMPTS:
        for count in (0, 4):
            options: dict[str, Any] = {"num_beams": 3, "num_speculative_tokens": count}
            outputs = [await pair.generate(prompt, COUNT, **options) for pair in (served.sharded, served.whole)]
            assert outputs[0].token_ids == outputs[1].token_ids
            assert outputs[0].summary.speculation.fallback_count == 0


def state_after(plain: Any, tokens: list[int]) -> np.ndarray:
    """The hidden state of the last token after LAYER: a wrong key shows in it before it changes a token."""
    with torch.no_grad():
        states = plain(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return states[LAYER + 1][0, -1].numpy()


async def test_rollback_and_forks(served: Served) -> None:
    """A fork that goes another way copies the block that both share, on both ranks."""
    target, plain = served.sharded.target, load_plain(served.folder)
    prompt, shared = [1, 2, 3, 4, 5, 6, 7, 8], 7  # three tokens in a block that both have
    await open_sequence(target, "a", prompt)
    first = [await next_token(target, "a", 0, 8), await next_token(target, "a", 1, 9)]
    assert first == generate_greedily(plain, prompt, 2)
    await target.sequences.RollbackSequence(pb.RollbackSequenceRequest(sequence_id="a", length=shared))
    await target.sequences.ForkSequence(pb.ForkSequenceRequest(sequence_id="a", forked_sequence_id="b", length=shared))
    text = {"a": prompt[:shared], "b": prompt[:shared]}
    for step in range(2, 8):
        for name, token in (("a", 9 + step), ("b", 21 + step)):
            answer = await target.hot.VerifyProposal(
                target_pb.VerifyProposalRequest(
                    sequence_id=name,
                    step=step,
                    base_length=len(text[name]),
                    appended_token_ids=[token],
                    feature_layers=[LAYER],
                )
            )
            text[name].append(token)
            state = np.frombuffer(answer.features.states.data, dtype="<f4")
            assert np.allclose(state, state_after(plain, text[name]), atol=1e-4), (name, step)
            text[name].append(answer.next_token_id)
    await close(target, "a", "b")


async def test_it_passes_verify_exactness(served: Served) -> None:
    if served.kind == DETERMINISTIC:
        pytest.skip("once is enough")
    pair = served.sharded
    settings = Settings(
        prompts=((0, 1),), draws=24, seed=7, option_sets={"plain": SamplingOptions()}, greedy_tokens=6, sequences=4,
        sequence_tokens=6,
    )  # fmt: skip
    report = await verify(
        pair.coordinator, await describe(pair.coordinator), settings, alpha=1e-3, concurrency=8, show=no_show
    )
    assert report.passed, report.verdict_line


async def test_it_says_how_many_ranks_it_has(served: Served) -> None:
    for pair, ranks in ((served.sharded, 2), (served.whole, 1)):
        info = await pair.target.sequences.GetModelInfo(pb.GetModelInfoRequest())
        assert info.tensor_parallel_size == ranks
        assert pair.target.registry.get_sample_value("specpair_model_ranks") == ranks
    infos = [pair.target.host.info() for pair in (served.sharded, served.whole)]
    assert infos[0].parameter_count == infos[1].parameter_count
