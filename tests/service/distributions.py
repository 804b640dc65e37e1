"""Many sampled outputs of a served pair, held against exact enumeration of its target by Pearson's chi-square test.

Seeds are fixed, so the outcome is too.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.reference import enumerate_continuations
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

VOCABULARY = 4
PROMPT = [1, 2, 0]
SAMPLES = 600
FEWER = 300
"""Where the rule is not what is in question."""
ENOUGH_FOR_CONTROLS = 400
"""A broken rule must show already in fewer outputs than those that a rule in order is held to."""
PER_REQUEST = 25
RULES = {
    "token": sampling_pb2.ACCEPTANCE_RULE_TOKEN,
    "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK,
    "coupled": sampling_pb2.ACCEPTANCE_RULE_COUPLED,
}
ENCODINGS = {
    "sparse": sampling_pb2.DISTRIBUTION_ENCODING_SPARSE,
    "dense": sampling_pb2.DISTRIBUTION_ENCODING_DENSE,
}
PLAIN = SamplingOptions()
OPTIONS = {
    "temperature": SamplingOptions(temperature=0.6),
    "top_k": SamplingOptions(top_k=3),
    "top_p": SamplingOptions(top_p=0.8),
    "min_p": SamplingOptions(min_p=0.4),
    "repetition_penalty": SamplingOptions(repetition_penalty=1.6),
    "presence_penalty": SamplingOptions(presence_penalty=0.9),
    "frequency_penalty": SamplingOptions(frequency_penalty=0.7),
    "logit_bias": SamplingOptions(logit_bias=((3, 1.0), (0, -0.7))),
    "allowed_token_ids": SamplingOptions(allowed_token_ids=(0, 2, 3)),
    "banned_token_ids": SamplingOptions(banned_token_ids=(2,)),
    "min_tokens": SamplingOptions(min_tokens=2, stop_token_ids=(3,)),
    "several": SamplingOptions(temperature=0.7, top_k=3, top_p=0.95, presence_penalty=0.5),
}


@dataclass(frozen=True)
class Served:
    pair: RunningPair
    model: Any
    """The target as transformers runs it."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.35}
    return make_model(folder / "target", seed=3, **shape), make_model(folder / "draft", seed=4, **shape)


@pytest.fixture(scope="module")
async def served(folders: tuple[Path, Path]) -> AsyncIterator[Served]:
    target, draft = folders
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


async def draw(
    pair: RunningPair, options: SamplingOptions, samples: int = SAMPLES, **fields: Any
) -> Counter[tuple[int, ...]]:
    """Outputs of 5 tokens, drawn with K = 3, so that whole blocks are judged; shorter where a stop token came."""
    requests = (
        pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=PROMPT),
            max_tokens=5,
            n=PER_REQUEST,
            sampling=sampling_to_proto(replace(options, seed=first)),
            **{"num_speculative_tokens": 3, **fields},
        )
        for first in range(0, samples, PER_REQUEST)
    )
    gate = asyncio.Semaphore(2)

    async def outputs(request: pb.GenerateTokensRequest) -> list[tuple[int, ...]]:
        tokens: dict[int, list[int]] = defaultdict(list)
        async with gate:
            async for response in pair.coordinator.GenerateTokens(request):
                tokens[response.choice_index] += [token.id for token in response.tokens]
        return [tuple(ids) for ids in tokens.values()]

    drawn = await asyncio.gather(*(outputs(request) for request in requests))
    return Counter(output for some in drawn for output in some)


def p_value(
    counts: Counter[tuple[int, ...]],
    model: Any,
    options: SamplingOptions,
    length: int,
    prompt: Sequence[int] | None = None,
) -> float:
    """Of the chi-square test on the first `length` tokens, what follows a stop token left out.

    Rare outcomes are pooled until at least 5 are expected, impossible ones are fatal.
    """
    observed = Counter[tuple[int, ...]]()
    for tokens, count in counts.items():
        observed[tokens[:length]] += count
    expected: dict[tuple[int, ...], float] = defaultdict(float)
    for tokens, probability in enumerate_continuations(
        model, PROMPT if prompt is None else prompt, options, length
    ).items():
        expected[until_stop(tokens, options)] += probability
    assert not [tokens for tokens in observed if expected[tokens] < 1e-12], "an impossible outcome came out"
    total = sum(observed.values())
    observed_bins, expected_bins = [0.0], [0.0]
    for tokens in sorted(expected, key=lambda tokens: expected[tokens]):
        if expected_bins[-1] >= 5:
            observed_bins.append(0.0)
            expected_bins.append(0.0)
        observed_bins[-1] += observed[tokens]
        expected_bins[-1] += expected[tokens] * total
    if len(expected_bins) == 1:
        return 1.0
    return float(chisquare(observed_bins, np.array(expected_bins) * total / sum(expected_bins)).pvalue)


def until_stop(tokens: tuple[int, ...], options: SamplingOptions) -> tuple[int, ...]:
    ends = [i + 1 for i, token in enumerate(tokens) if token in options.stop_token_ids]
    return tokens[: min(ends, default=len(tokens))]


async def check_distribution(
    served: Served,
    options: SamplingOptions = PLAIN,
    samples: int = SAMPLES,
    lengths: Sequence[int] = (2, 3, 4),
    **fields: Any,
) -> None:
    """The joint distribution of the first tokens is the target's."""
    counts = await draw(served.pair, options, samples, **fields)
    for length in lengths:
        assert p_value(counts, served.model, options, length) > 1e-3, f"{length} tokens"
