"""Through the real services, sampled text is distributed as the target's own.

Many requests with different seeds; the joint distribution of their first tokens is held against exact
enumeration of the target model, by Pearson's chi-square test. Seeds are fixed, so the outcome is too. The
negative controls break one rule of the design inside the running service, and the same test must see it.
"""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import target_service.verifier as verifier
from specpair.options import SamplingOptions
from specpair.speculation.randomness import Domain, uniforms
from specpair.v1 import sampling_pb2
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

VOCABULARY = 4
PROMPT = [1, 2, 0]
SAMPLES = 1000
AT_ONCE = 48
RULES = {"token": sampling_pb2.ACCEPTANCE_RULE_TOKEN, "block": sampling_pb2.ACCEPTANCE_RULE_BLOCK}
ENCODINGS = {
    "sparse": sampling_pb2.DISTRIBUTION_ENCODING_SPARSE,
    "dense": sampling_pb2.DISTRIBUTION_ENCODING_DENSE,
}
OPTIONS = {
    "plain": {},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.8},
    "both": {"temperature": 0.7, "top_k": 3, "top_p": 0.95},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.35}
    return make_model(folder / "target", seed=3, **shape), make_model(folder / "draft", seed=4, **shape)


def enumerate_target(folder: Path, length: int, options: dict[str, Any]) -> dict[tuple[int, ...], float]:
    """The probability of every continuation of PROMPT by `length` tokens, one plain forward pass each."""
    model = load_plain(folder)
    joint = {(): 1.0}
    for _ in range(length):
        extended = {}
        for tokens, probability in joint.items():
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([[*PROMPT, *tokens]])).logits[0, -1].double().numpy()
            for token, share in enumerate(plain_distribution(logits, SamplingOptions(**options))):
                extended[(*tokens, token)] = probability * share
        joint = extended
    return joint


def plain_distribution(logits: np.ndarray, options: SamplingOptions) -> np.ndarray:
    """Temperature, top-k, top-p on one row, written down as plainly as can be."""
    weights = np.exp((logits - logits.max()) / options.temperature)
    order = np.argsort(-weights)
    if options.top_k:
        weights[order[options.top_k :]] = 0.0
    weights /= weights.sum()
    before = 0.0
    for token in order:
        share = weights[token]
        if before >= options.top_p:
            weights[token] = 0.0
        before += share
    return weights / weights.sum()


async def draw(pair: RunningPair, length: int, **options: Any) -> Counter[tuple[int, ...]]:
    """The first `length` tokens of SAMPLES requests; they run on, so that whole blocks of K are judged."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> tuple[int, ...]:
        async with gate:
            output = await pair.generate(PROMPT, 5, seed=seed, num_speculative_tokens=3, **options)
        return tuple(output.token_ids[:length])

    return Counter(await asyncio.gather(*(one(seed) for seed in range(SAMPLES))))


def p_value(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Of the chi-square test; rare outcomes are pooled until at least 5 are expected, impossible ones are fatal."""
    assert not [tokens for tokens in counts if expected[tokens] < 1e-12], "an impossible outcome came out"
    total = sum(counts.values())
    observed_bins, expected_bins = [0.0], [0.0]
    for tokens in sorted(expected, key=lambda tokens: expected[tokens]):
        if expected_bins[-1] >= 5:
            observed_bins.append(0.0)
            expected_bins.append(0.0)
        observed_bins[-1] += counts[tokens]
        expected_bins[-1] += expected[tokens] * total
    return float(chisquare(observed_bins, np.array(expected_bins) * total / sum(expected_bins)).pvalue)


def shorten(counts: Counter[tuple[int, ...]], length: int) -> Counter[tuple[int, ...]]:
    shorter: Counter[tuple[int, ...]] = Counter()
    for tokens, count in counts.items():
        shorter[tokens[:length]] += count
    return shorter


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "encoding", "options"),
    [
        *itertools.product(RULES, ["sparse"], OPTIONS),
        *itertools.product(RULES, ["dense"], ["plain"]),
    ],
)
async def test_joint_distribution(models: tuple[Path, Path], rule: str, encoding: str, options: str) -> None:
    target, draft = models
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        counts = await draw(pair, 4, rule=RULES[rule], encoding=ENCODINGS[encoding], **OPTIONS[options])
        await pair.check_clean()
    for length in (2, 3, 4):
        expected = enumerate_target(target, length, OPTIONS[options])
        assert p_value(shorten(counts, length), expected) > 1e-3, f"{length} tokens"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
async def test_shared_noise_is_seen(models: tuple[Path, Path], rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the acceptance draws with the noise that the draft drew its tokens with."""

    def drafting_noise(works: list[verifier.VerifyWork], most: int) -> torch.Tensor:
        keys = [(w.held.options.sampling.seed, w.call.step, offset) for w in works for offset in range(most)]
        seeds, steps, offsets = zip(*keys, strict=True) if keys else ((), (), ())
        return uniforms(seeds, Domain.DRAFT, steps, offsets).reshape(len(works), most)

    monkeypatch.setattr(verifier, "acceptance_noise", drafting_noise)
    assert await p_value_of_broken(models, RULES[rule]) < 1e-4


@pytest.mark.timeout(600)
async def test_accepting_everything_is_seen(models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: no draft token is ever rejected."""
    monkeypatch.setattr(verifier, "acceptance_noise", lambda works, most: torch.zeros(len(works), most))
    assert await p_value_of_broken(models, RULES["token"]) < 1e-6


async def p_value_of_broken(models: tuple[Path, Path], rule: int) -> float:
    target, draft = models
    async with running_pair(engine_config(target), engine_config(draft)) as pair:
        counts = await draw(pair, 3, rule=rule, encoding=ENCODINGS["sparse"])
    return p_value(counts, enumerate_target(target, 3, {}))
