"""With a draft that is itself accelerated, too, the joint distribution of the first tokens is the target's."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draft_service.drafters.guessing import GuessingWork
from specpair.options import SamplingOptions
from tests.service.distributions import (
    ENCODINGS,
    ENOUGH_FOR_CONTROLS,
    OPTIONS,
    PLAIN,
    RULES,
    Served,
    check_distribution,
    draw,
    folders,
    p_value,
)
from tests.service.metrics_load import total
from tests.services import draft_config, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

__all__ = ["folders"]
ENOUGH = 500


@pytest.fixture(scope="module")
async def served(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The guesses are those of a model that knows nothing of the draft: most of them are wrong."""
    target, draft = folders
    shape = {"vocab_size": 4, "num_hidden_layers": 1, "initializer_range": 0.35}
    second = make_model(tmp_path_factory.mktemp("second"), seed=5, **shape)
    own = replace(draft_config(draft), own_draft=str(second))
    async with running_pair(engine_config(target), own) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


def guesses(served: Served) -> float:
    """How many were right so far."""
    assert served.pair.draft is not None
    return total(served.pair.draft.registry, "specpair_draft_accepted_guesses_total")


@pytest.mark.few_cases("token-sparse-several")
@pytest.mark.parametrize(
    ("rule", "encoding", "option"),
    [("block", "sparse", "plain"), ("token", "sparse", "several"), ("token", "dense", "frequency_penalty")],
)
async def test_the_distribution_is_the_targets(served: Served, rule: str, encoding: str, option: str) -> None:
    options: SamplingOptions = PLAIN if option == "plain" else OPTIONS[option]
    fields: dict[str, Any] = {"rule": RULES[rule], "encoding": ENCODINGS[encoding], "num_speculative_tokens": 4}
    before = guesses(served)
    await check_distribution(served, options, ENOUGH, **fields)
    assert guesses(served) - before > ENOUGH / 10


async def test_a_guess_that_is_taken_for_a_draw_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a guess replaces the token that the model drew, and the model's row is sent with it."""

    def believe(work: GuessingWork, level: int) -> bool:
        if level >= len(work.fed):
            return False
        work.tokens[-1] = work.sequence.tokens[-1] = work.fed[level]
        return not work.done

    monkeypatch.setattr(GuessingWork, "has_row", believe)
    fields: dict[str, Any] = {"rule": RULES["token"], "num_speculative_tokens": 4}
    counts = await draw(served.pair, PLAIN, ENOUGH_FOR_CONTROLS, **fields)
    assert p_value(counts, served.model, PLAIN, 4) < 1e-12
