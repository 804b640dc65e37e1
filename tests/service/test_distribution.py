"""Through the real services, sampled text is distributed as the target's own, under every sampling option.

Many outputs with different seeds; the joint distribution of their first tokens is held against exact enumeration of
the target model, by Pearson's chi-square test. Seeds are fixed, so the outcome is too. The negative controls break one
rule of docs/exactness.md inside the running service, and the same test must see it.
"""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import target_service.judging as judging
from coordinator.adaptive.withholding import Withholding
from specpair.options import SamplingOptions
from specpair.speculation.randomness import Domain, random_words, uniforms
from specpair.v1 import coordinator_service_pb2 as pb
from tests.option_strategies import sampling_options
from tests.reference import enumerate_continuations
from tests.service.distributions import (
    ENCODINGS,
    ENOUGH_FOR_CONTROLS,
    FEWER,
    OPTIONS,
    PLAIN,
    PROMPT,
    RULES,
    SAMPLES,
    VOCABULARY,
    Served,
    check_distribution,
    draw,
    folders,
    p_value,
    served,
)
from tests.service.metrics_load import total
from tests.services import engine_config, running_pair
from tests.tiny_models import load_plain

__all__ = ["folders", "served"]


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


def distance(model: Any, first: SamplingOptions, second: SamplingOptions, length: int) -> float:
    """Total variation between what the target writes under two sets of options."""
    one, other = (enumerate_continuations(model, PROMPT, options, length) for options in (first, second))
    return sum(abs(one[tokens] - other[tokens]) for tokens in one) / 2


@pytest.mark.few_cases("token-sparse", "block-dense", "coupled-sparse")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "encoding"), [("token", "sparse"), ("block", "sparse"), ("coupled", "sparse"), ("block", "dense")]
)
async def test_joint_distribution(served: Served, rule: str, encoding: str) -> None:
    await check_distribution(served, rule=RULES[rule], encoding=ENCODINGS[encoding])


@pytest.mark.few_cases("whole-block", "ids first-token")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("withholds", [False, True], ids=["whole", "ids first"])
async def test_joint_distribution_with_work_ahead(
    served: Served, rule: str, withholds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With K = 2, so that most outputs have rounds whose proposal was prepared. Their distributions come with them, or
    after the target has begun."""
    monkeypatch.setattr(Withholding, "pays", withholds)

    def hits() -> float:
        registry = served.pair.front_end.registry
        return sum(total(registry, "specpair_ahead_rounds_total", outcome=outcome) for outcome in ("hit", "late"))

    def followed() -> float:
        name = "specpair_target_late_distributions_total"
        return sum(total(served.pair.target.registry, name, outcome=each) for each in ("in_time", "waited_for"))

    before = hits(), followed()
    fields = {"num_speculative_tokens": 2, "work_ahead": pb.WORK_AHEAD_MODE_ON}
    await check_distribution(served, rule=RULES[rule], **fields)
    assert hits() - before[0] > SAMPLES / 10
    assert (followed() - before[1] > SAMPLES / 20) is (withholds and rule != "coupled")


@pytest.mark.few_cases("block-sparse")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "encoding"), [("token", "sparse"), ("block", "sparse"), ("coupled", "sparse"), ("token", "dense")]
)
async def test_joint_distribution_with_a_reduced_draft(reduced: Served, rule: str, encoding: str) -> None:
    """The token that the draft never gives comes as often as the target writes it."""
    await check_distribution(
        reduced, PLAIN, ENOUGH_FOR_CONTROLS, lengths=(1, 2, 3), rule=RULES[rule], encoding=ENCODINGS[encoding]
    )


@pytest.mark.few_cases(3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OPTIONS)
async def test_joint_distribution_under_each_option(served: Served, name: str) -> None:
    options = OPTIONS[name]
    assert distance(served.model, options, PLAIN, 3) > 0.02, "the option does nothing here"
    await check_distribution(served, options, FEWER, lengths=(2, 3), rule=RULES["block"])


@pytest.mark.few_cases()
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


@pytest.mark.few_cases("block")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", ["token", "block"])
async def test_shared_noise_is_seen(served: Served, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the acceptance draws with the noise that the draft drew its tokens with."""

    def drafting_noise(works: list[judging.VerifyWork], most: int) -> np.ndarray:
        return np.stack(
            [uniforms(random_words(w.options.sampling.seed, Domain.DRAFT, w.call.step, 0, most)) for w in works]
        )

    monkeypatch.setattr(judging, "acceptance_noise", drafting_noise)
    counts = await draw(served.pair, PLAIN, 2 * ENOUGH_FOR_CONTROLS, rule=RULES[rule])
    assert p_value(counts, served.model, PLAIN, 4) < 1e-9


@pytest.mark.timeout(600)
async def test_accepting_everything_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: no draft token is ever rejected."""
    monkeypatch.setattr(judging, "acceptance_noise", lambda works, most: np.zeros((len(works), most)))
    counts = await draw(served.pair, PLAIN, 100, rule=RULES["token"])
    assert p_value(counts, served.model, PLAIN, 3) < 1e-12
