"""Through the real services, with speculation, every sampling option does what a plain loop over the target does.

Greedy decoding and the coupled rule are functions of their input, so they are compared token for token; the
distribution under the token and block rules is in test_distribution.py.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from specpair.v1 import sampling_pb2
from tests.option_strategies import sampling_options
from tests.reference import coupled_choice, plain_loop
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

VOCABULARY = 12
PROMPT = [5, 2, 7, 2, 11]
COUNT = 14
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.3},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 0.8},
    "logit_bias": {"logit_bias": ((3, 2.5), (9, -4.0))},
    "allowed_token_ids": {"allowed_token_ids": (1, 4, 6, 8)},
    "banned_token_ids": {"banned_token_ids": (0, 5, 7, 10)},
    "min_tokens": {"min_tokens": 9, "stop_token_ids": (1, 4, 6, 8)},
}


@dataclass(frozen=True)
class Served:
    pair: RunningPair
    model: Any
    """The target as transformers runs it."""


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    target = make_model(folder / "target", seed=1, vocab_size=VOCABULARY, initializer_range=0.3)
    draft = make_model(folder / "draft", seed=1, vocab_size=VOCABULARY, initializer_range=0.3, num_hidden_layers=2)
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


async def generate(served: Served, options: SamplingOptions, rule: str, k: int) -> list[int]:
    output = await served.pair.generate(
        PROMPT,
        COUNT,
        sampling=sampling_to_proto(options),
        rule=RULES[rule],
        num_speculative_tokens=k,
    )
    return output.token_ids


def until_stop(tokens: list[int], options: SamplingOptions) -> list[int]:
    """Up to the first stop token."""
    ends = [i + 1 for i, token in enumerate(tokens) if token in options.stop_token_ids and i >= options.min_tokens]
    return tokens[: min(ends, default=len(tokens))]


def expected(served: Served, options: SamplingOptions) -> list[int]:
    return until_stop(plain_loop(served.model, PROMPT, options, COUNT, coupled_choice(options.seed)), options)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", OPTIONS)
async def test_each_option_equals_a_plain_loop(served: Served, name: str, temperature: float) -> None:
    options = replace(SamplingOptions(temperature=temperature, seed=11), **OPTIONS[name])
    rules = ["coupled"] if options.temperature else list(RULES)
    for rule in rules:
        for k in (0, 5):
            assert await generate(served, options, rule, k) == expected(served, options), (rule, k)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "top_p"])
async def test_each_option_changes_something(served: Served, name: str) -> None:
    """Or the comparisons above would pass without it."""
    plain = SamplingOptions(seed=11, stop_token_ids=OPTIONS[name].get("stop_token_ids", ()))
    assert expected(served, replace(plain, **OPTIONS[name])) != expected(served, plain)


@given(options=sampling_options(VOCABULARY), seed=st.integers(0, 2**64 - 1), k=st.integers(1, 8))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_combination_equals_a_plain_loop(served: Served, options: SamplingOptions, seed: int, k: int) -> None:
    options = replace(options, seed=seed)
    assert await generate(served, options, "coupled", k) == expected(served, options)


@given(options=sampling_options(VOCABULARY, greedy=True), k=st.integers(1, 8), rule=st.sampled_from(["token", "block"]))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_greedy_combination_equals_a_plain_loop(
    served: Served, options: SamplingOptions, k: int, rule: str
) -> None:
    assert await generate(served, options, rule, k) == expected(served, options)


async def test_greedy_options_equal_transformers(served: Served) -> None:
    """Those that transformers defines in the same way."""
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        output = served.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=COUNT,
            do_sample=False,
            pad_token_id=0,
            repetition_penalty=1.4,
            suppress_tokens=[2, 9],
            sequence_bias=[[[3], 1.5]],
            eos_token_id=[4, 6],
            min_new_tokens=6,
        )
    options = SamplingOptions(
        temperature=0.0,
        repetition_penalty=1.4,
        banned_token_ids=(2, 9),
        logit_bias=((3, 1.5),),
        stop_token_ids=(4, 6),
        min_tokens=6,
    )
    assert await generate(served, options, "block", 5) == output[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("rule", ["token", "block"])
async def test_a_seed_repeats_for_the_same_k(served: Served, rule: str) -> None:
    options = SamplingOptions(seed=99, presence_penalty=0.5)
    first = await generate(served, options, rule, 4)
    assert await generate(served, options, rule, 4) == first
    others = [await generate(served, replace(options, seed=seed), rule, 4) for seed in (1, 2)]
    assert any(other != first for other in others)
