"""T5, mT5 and BART models through the real services: every output is the target's own, whatever proposes."""

import asyncio
import gc
import sys
import weakref
from asyncio.subprocess import PIPE
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from draft_service.config import DraftConfig
from models.t5.task import sentences
from specpair.options import Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.reference import coupled_choice, plain_loop
from tests.service.distributions import PLAIN, RULES, p_value
from tests.services import RunningModel, RunningPair, engine_config, running_pair
from tests.tiny_encoder_decoders import (
    Conditioned,
    generate_greedily,
    load_plain,
    make_encoder_decoder,
    make_variation,
)

T5 = Path(__file__).parents[2] / "models" / "t5"
COUPLED = sampling_pb2.ACCEPTANCE_RULE_COUPLED
CACHES = {"t5": "contiguous", "mt5": "paged", "bart": "paged"}
START = {"t5": 0, "mt5": 0, "bart": 2}
SPREADS = {"t5": 0.08, "mt5": 0.01, "bart": 0.03}
"""How far the draft is from the target: half of what it proposes is accepted, or more."""
INPUTS = [[5, 6, 7, 8], [9, 10, 33, 12, 40, 41, 3], [11]]
COUNT = 20
SAMPLES = 300
PATIENT: dict[str, Any] = {"draft_timeout": 60.0}
"""However busy the machine is, no round goes without its proposal."""


@dataclass(frozen=True)
class Served:
    kind: str
    pair: RunningPair
    model: Any
    """The target as transformers runs it."""


@pytest.fixture(scope="module", params=["t5", "mt5", "bart"])
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A target with a draft that is often right."""
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    target = make_encoder_decoder(folder / "target", kind, seed=1)
    draft = make_variation(folder / "draft", target, spread=SPREADS[kind])
    cache = CACHES[kind]
    async with running_pair(engine_config(target, cache=cache), engine_config(draft, cache=cache), **PATIENT) as pair:
        yield Served(kind, pair, load_plain(target))
        await pair.check_clean()


async def outputs_of(pair: RunningPair, encoder_ids: list[int], **fields: Any) -> list[list[int]]:
    """The tokens of each output."""
    request = pb.GenerateTokensRequest(encoder_token_ids={"ids": encoder_ids}, **{"max_tokens": COUNT, **fields})  # type: ignore[arg-type]
    tokens: dict[int, list[int]] = defaultdict(list)
    async for response in pair.coordinator.GenerateTokens(request):
        tokens[response.choice_index] += [token.id for token in response.tokens]
        if response.HasField("summary"):
            assert response.summary.encoder_token_count == len(encoder_ids)
            assert response.summary.speculation.fallback_count == 0
    return [tokens[index] for index in sorted(tokens)]


@pytest.mark.few_cases(6)
@pytest.mark.parametrize(("k", "penalty"), [(0, 1.0), (1, 1.4), (2, 1.4), (4, 1.0), (8, 1.4), (None, 1.4)])
async def test_greedy_is_what_transformers_generates(served: Served, k: int | None, penalty: float) -> None:
    """Several at once, so that a pass has sequences with different inputs; the penalty makes them less monotonous.
    Without a K it is adaptive."""
    expected = [generate_greedily(served.model, ids, COUNT, repetition_penalty=penalty) for ids in INPUTS]
    options = {"temperature": 0.0, "repetition_penalty": penalty}
    fields: dict[str, Any] = {"num_speculative_tokens": k, "sampling": options}
    together = await asyncio.gather(*(outputs_of(served.pair, ids, **fields) for ids in INPUTS))
    assert together == [[tokens] for tokens in expected]
    assert len({tuple(tokens) for tokens in expected}) == len(INPUTS), "the input does not show"


@pytest.mark.few_cases(5)
@pytest.mark.parametrize(
    "proposing",
    [
        {"num_speculative_tokens": 0},
        {"num_speculative_tokens": 2},
        {"num_speculative_tokens": None},
        {"num_speculative_tokens": 4, "work_ahead": pb.WORK_AHEAD_MODE_ON},
        {"num_speculative_tokens": 3, "num_tree_tokens": 8},
    ],
)
async def test_coupled_outputs_are_those_of_a_plain_loop(served: Served, proposing: dict[str, Any]) -> None:
    """Two outputs for each input: the second is a fork of the first. The draft reads the input once, whatever it
    prepares ahead."""
    assert served.pair.draft is not None
    counted: Any = served.pair.draft.host.engine.statistics
    before = counted.encoded_inputs
    for ids in INPUTS[:2]:
        model, start = Conditioned(served.model, ids), [START[served.kind]]
        expected = [plain_loop(model, start, SamplingOptions(seed=i), COUNT, coupled_choice(i)) for i in (7, 8)]
        assert await outputs_of(served.pair, ids, n=2, rule=COUPLED, sampling={"seed": 7}, **proposing) == expected
    if proposing["num_speculative_tokens"] is not None:
        assert counted.encoded_inputs - before == (2 if proposing["num_speculative_tokens"] else 0)


async def test_proposals_are_often_accepted(served: Served) -> None:
    """A draft that encoded something else would hardly be right."""
    request = pb.GenerateTokensRequest(
        encoder_token_ids={"ids": INPUTS[1]},  # type: ignore[arg-type]
        max_tokens=60,
        num_speculative_tokens=3,
        rule=COUPLED,
        sampling={"seed": 1},  # type: ignore[arg-type]
    )
    *_, last = [response async for response in served.pair.coordinator.GenerateTokens(request)]
    assert last.summary.speculation.acceptance_rate > 0.3


def encoder_inputs(model: RunningModel) -> list[weakref.ref[Any]]:
    """Those of all open sequences, without a reference to any of them."""
    held: Any = model.host.sequences._held
    return [weakref.ref(entry.cached.encoder_input) for entry in held.values()]


async def test_forks_share_what_the_encoder_gave_and_it_is_freed_with_the_last(served: Served) -> None:
    assert served.pair.draft is not None
    models: Any = (served.pair.target, served.pair.draft)
    before = [model.host.engine.statistics.encoded_inputs for model in models]
    states: list[weakref.ref[Any]] = []
    request = pb.GenerateTokensRequest(
        encoder_token_ids={"ids": INPUTS[0]},  # type: ignore[arg-type]
        max_tokens=COUNT,
        n=4,
        num_speculative_tokens=2,
        sampling={"seed": 1},  # type: ignore[arg-type]
    )
    async for _ in served.pair.coordinator.GenerateTokens(request):
        states += [state for model in models for state in encoder_inputs(model)]
    assert len(set(states)) == len(models)
    assert [model.host.engine.statistics.encoded_inputs for model in models] == [count + 1 for count in before]
    await served.pair.check_clean()
    async with asyncio.timeout(60):
        while any(state() is not None for state in states):
            gc.collect()
            await asyncio.sleep(0.01)


async def test_the_same_tokens_after_another_input_are_not_found_in_the_cache(served: Served) -> None:
    """A prompt of the decoder of several blocks, kept after each request if it could be."""
    prompt = [START[served.kind], *range(20, 40)]
    for ids in INPUTS:
        model = Conditioned(served.model, ids)
        expected = plain_loop(model, prompt, SamplingOptions(seed=3), 8, coupled_choice(3))
        fields: dict[str, Any] = {"token_ids": {"ids": prompt}, "rule": COUPLED, "sampling": {"seed": 3}}
        assert await outputs_of(served.pair, ids, max_tokens=8, **fields) == [expected]


@pytest.mark.few_cases("t5-block")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "rule"), [("t5", "block"), ("mt5", "token"), ("bart", "block")])
async def test_sampled_outputs_are_distributed_as_the_targets(kind: str, rule: str, tmp_path: Path) -> None:
    """Against exact enumeration of a vocabulary of four tokens."""
    shape: dict[str, Any] = {"vocab_size": 4}
    target = make_encoder_decoder(tmp_path / "target", kind, seed=3, **shape)
    draft = make_encoder_decoder(tmp_path / "draft", kind, seed=4, **shape)
    ids, start = [3, 1, 2, 2], START[kind]
    counts: Counter[tuple[int, ...]] = Counter()
    async with running_pair(engine_config(target), engine_config(draft), **PATIENT) as pair:
        for seed in range(0, SAMPLES, 25):
            fields: dict[str, Any] = {"rule": RULES[rule], "sampling": {"seed": seed}, "num_speculative_tokens": 3}
            drawn = await outputs_of(pair, ids, n=25, max_tokens=5, **fields)
            counts.update(tuple(tokens) for tokens in drawn)
    assert sum(counts.values()) == SAMPLES and len(counts) > 20
    model = Conditioned(load_plain(target), ids)
    for length in (2, 3, 4):
        assert p_value(counts, model, PLAIN, length, [start]) > 1e-3, f"{length} tokens"


@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.PROMPT_LOOKUP])
async def test_drafters_without_a_model_work_as_they_are(drafter: Drafter, tmp_path: Path) -> None:
    target = make_encoder_decoder(tmp_path / "target", "t5", seed=1)
    expected = generate_greedily(load_plain(target), INPUTS[0], COUNT)
    async with running_pair(engine_config(target), DraftConfig(drafter=drafter), **PATIENT) as pair:
        fields: dict[str, Any] = {"drafter": drafter_to_proto(drafter), "sampling": {"temperature": 0.0}}
        assert await outputs_of(pair, INPUTS[0], num_speculative_tokens=4, **fields) == [expected]


async def test_the_bundled_pair_translates_and_its_draft_is_often_right() -> None:
    """On the command line, too."""
    tokenizer, model = AutoTokenizer.from_pretrained(T5 / "target"), load_plain(T5 / "target")
    target, draft = (engine_config(T5 / name, max_model_len=64) for name in ("target", "draft"))
    async with running_pair(target, draft, **PATIENT) as pair:
        counts, text, said = [0, 0], "", ""
        for sentence in islice(sentences(99), 8):
            text = " ".join(sentence.source)
            expected = generate_greedily(model, tokenizer(text).input_ids, 40)
            request = pb.GenerateTokensRequest(
                encoder_text=text,
                max_tokens=40,
                num_speculative_tokens=4,
                sampling={"temperature": 0.0},  # type: ignore[arg-type]
            )
            responses = [response async for response in pair.coordinator.GenerateTokens(request)]
            assert [token.id for response in responses for token in response.tokens] == expected
            said = "".join(response.text for response in responses)
            done = responses[-1].summary.speculation
            counts = [counts[0] + done.accepted_token_count, counts[1] + done.draft_token_count]
        assert counts[0] / counts[1] > 0.3
        flags = ["--temperature", "0", "--max-tokens", "40", "--address", pair.address]
        command = [sys.executable, "-m", "command", "generate", "--encoder-input", text, *flags]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, said.strip()), err
