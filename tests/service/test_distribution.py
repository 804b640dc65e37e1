"""Through the real services, sampled text is distributed as the target's own, under every sampling option.

Many outputs with different seeds; the joint distribution of their first tokens is held against exact enumeration of
the target model, by Pearson's chi-square test. Seeds are fixed, so the outcome is too. The negative controls break one
rule of docs/exactness.md inside the running service, and the same test must see it.
"""

import asyncio
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import target_service.judging as judging
from specpair.options import SamplingOptions
from specpair.rpc.messages import sampling_to_proto
from specpair.speculation.randomness import Domain, random_words, uniforms
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from tests.option_strategies import sampling_options
from tests.reference import enumerate_continuations
from tests.service.metrics_load import total
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

VOCABULARY = 4
PROMPT = [1, 2, 0]
SAMPLES = 1000
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


@pytest.fixture(scope="module")
async def reduced(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The pair with a draft that never gives token 2."""
    target, draft = folders
    folder = Path(shutil.copytree(draft, tmp_path_factory.mktemp("reduced") / "draft"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "output_token_ids": [0, 1, 3]}))
    async with running_pair(engine_config(target), engine_config(folder)) as pair:
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


def distance(model: Any, first: SamplingOptions, second: SamplingOptions, length: int) -> float:
    """Total variation between what the target writes under two sets of options."""
    one, other = (enumerate_continuations(model, PROMPT, options, length) for options in (first, second))
    return sum(abs(one[tokens] - other[tokens]) for tokens in one) / 2


def until_stop(tokens: tuple[int, ...], options: SamplingOptions) -> tuple[int, ...]:
    ends = [i + 1 for i, token in enumerate(tokens) if token in options.stop_token_ids]
    return tokens[: min(ends, default=len(tokens))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "encoding"), [("token", "sparse"), ("block", "sparse"), ("coupled", "sparse"), ("block", "dense")]
)
async def test_joint_distribution(served: Served, rule: str, encoding: str) -> None:
    counts = await draw(served.pair, PLAIN, rule=RULES[rule], encoding=ENCODINGS[encoding])
    for length in (2, 3, 4):
        assert p_value(counts, served.model, PLAIN, length) > 1e-3, f"{length} tokens"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
async def test_joint_distribution_with_work_ahead(served: Served, rule: str) -> None:
    """With K = 2, so that most outputs have rounds whose proposal was prepared."""

    def hits() -> float:
        registry = served.pair.front_end.registry
        return sum(total(registry, "specpair_ahead_rounds_total", outcome=outcome) for outcome in ("hit", "late"))

    before = hits()
    fields = {"num_speculative_tokens": 2, "work_ahead": pb.WORK_AHEAD_MODE_ON}
    counts = await draw(served.pair, PLAIN, rule=RULES[rule], **fields)
    assert hits() - before > SAMPLES / 10
    for length in (2, 3, 4):
        assert p_value(counts, served.model, PLAIN, length) > 1e-3, f"{length} tokens"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "encoding"), [("token", "sparse"), ("block", "sparse"), ("coupled", "sparse"), ("token", "dense")]
)
async def test_joint_distribution_with_a_reduced_draft(reduced: Served, rule: str, encoding: str) -> None:
    """The token that the draft never gives comes as often as the target writes it."""
    counts = await draw(reduced.pair, PLAIN, ENOUGH_FOR_CONTROLS, rule=RULES[rule], encoding=ENCODINGS[encoding])
    for length in (1, 2, 3):
        assert p_value(counts, reduced.model, PLAIN, length) > 1e-3, f"{length} tokens"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OPTIONS)
async def test_joint_distribution_under_each_option(served: Served, name: str) -> None:
    options = OPTIONS[name]
    counts = await draw(served.pair, options, FEWER, rule=RULES["block"])
    assert distance(served.model, options, PLAIN, 3) > 0.02, "the option does nothing here"
    for length in (2, 3):
        assert p_value(counts, served.model, options, length) > 1e-3, f"{length} tokens"


@pytest.mark.timeout(600)
@given(options=sampling_options(VOCABULARY, greedy=False), rule=st.sampled_from(["token", "block"]))
@settings(
    deadline=None,
    max_examples=6,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_joint_distribution_under_any_combination(served: Served, options: SamplingOptions, rule: str) -> None:
    counts = await draw(served.pair, options, FEWER, rule=RULES[rule])
    assert p_value(counts, served.model, options, 3) > 1e-4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", ["token", "block"])
async def test_shared_noise_is_seen(served: Served, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the acceptance draws with the noise that the draft drew its tokens with."""

    def drafting_noise(works: list[judging.VerifyWork], most: int) -> np.ndarray:
        return np.stack(
            [uniforms(random_words(w.options.sampling.seed, Domain.DRAFT, w.call.step, 0, most)) for w in works]
        )

    monkeypatch.setattr(judging, "acceptance_noise", drafting_noise)
    counts = await draw(served.pair, PLAIN, ENOUGH_FOR_CONTROLS, rule=RULES[rule])
    assert p_value(counts, served.model, PLAIN, 4) < 1e-12


@pytest.mark.timeout(600)
async def test_accepting_everything_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: no draft token is ever rejected."""
    monkeypatch.setattr(judging, "acceptance_noise", lambda works, most: np.zeros((len(works), most)))
    counts = await draw(served.pair, PLAIN, 100, rule=RULES["token"])
    assert p_value(counts, served.model, PLAIN, 3) < 1e-12
