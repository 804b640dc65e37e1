"""Whatever drafter proposes: the joint distribution of the first tokens is the target's, as that of chains."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from specpair.options import Drafter, SamplingOptions
from specpair.rpc.messages import drafter_to_proto, model_info_from_proto
from specpair.speculation import predicted_proposal
from specpair.speculation.count_row import CountRow
from specpair.speculation.randomness import Domain, draw_bits
from specpair.v1 import sequence_service_pb2 as pb
from tests.service import distributions as distribution
from tests.service.drafting import (
    ENCODINGS,
    OF_A_DRAFT,
    PROMPT,
    RULES,
    SAMPLED,
    Served,
    generate,
    write_table,
)
from tests.services import draft_config, engine_config, running_pair
from tests.tiny_models import load_plain, make_model

pytestmark = pytest.mark.timeout(600)

DRAWS = 400


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A pair of four tokens, whose draft has everything that any drafter needs."""
    folder = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": distribution.VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.35}
    target, draft = make_model(folder / "target", seed=3, **shape), make_model(folder / "draft", seed=4, **shape)
    table = write_table(folder / "tables", distribution.VOCABULARY)
    async with running_pair(engine_config(target), replace(draft_config(draft), table=table)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.fixture
def repetitive_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "PROMPT", PROMPT)


async def p_values(served: Served, drafter: Drafter, options: SamplingOptions = SAMPLED, **fields: Any) -> list[float]:
    """Of the joint distributions of the first two and three tokens."""
    counts = await distribution.draw(served.pair, options, DRAWS, drafter=drafter_to_proto(drafter), **fields)
    return [distribution.p_value(counts, served.model, options, length) for length in (2, 3)]


@pytest.mark.few_cases("token-ngram-model", "block-bigram")
@pytest.mark.parametrize("drafter", [drafter for drafter in OF_A_DRAFT if drafter is not Drafter.MODEL])
@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution(served: Served, drafter: Drafter, rule: str) -> None:
    """The model is held to it in test_distribution; coupled output equals that without speculation, by token."""
    assert min(await p_values(served, drafter, rule=RULES[rule])) > 1e-3
    proof = await generate(served.pair, drafter, 30, PROMPT, rule=RULES[rule])
    assert proof.summary.speculation.draft_token_count > 5
    assert 0 < proof.summary.speculation.accepted_token_count < proof.summary.speculation.draft_token_count


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("drafter", [Drafter.NGRAM, Drafter.UNIFORM, Drafter.BIGRAM])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution_with_dense_rows(served: Served, drafter: Drafter) -> None:
    assert min(await p_values(served, drafter, rule=RULES["block"], encoding=ENCODINGS["dense"])) > 1e-3


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", ["temperature", "banned_token_ids", "min_tokens", "several"])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_joint_distribution_under_options(served: Served, name: str) -> None:
    assert min(await p_values(served, Drafter.NGRAM, distribution.OPTIONS[name], rule=RULES["block"])) > 1e-3


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.usefixtures("repetitive_prompt")
async def test_noise_shared_with_the_target_is_seen(served: Served, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the drafter draws with the noise that acceptance is decided with."""
    monkeypatch.setattr(
        predicted_proposal, "draw_bits", lambda seed, _, step, at: draw_bits(seed, Domain.ACCEPT, step, at)
    )
    assert min(await p_values(served, Drafter.NGRAM, rule=RULES[rule])) < 1e-4


@pytest.mark.usefixtures("repetitive_prompt")
async def test_a_row_that_was_not_drawn_from_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the drafter takes its likeliest token, and sends the row all the same."""

    def heaviest(row: CountRow, bits: int) -> int:
        return row.token_ids[list(row.counts).index(max(row.counts))]

    monkeypatch.setattr(predicted_proposal, "draw_token", heaviest)
    assert min(await p_values(served, Drafter.NGRAM, rule=RULES["token"])) < 1e-4


async def test_with_a_model_it_names_all_that_can_propose(served: Served) -> None:
    assert served.pair.draft is not None
    info = model_info_from_proto(await served.pair.draft.sequences.GetModelInfo(pb.GetModelInfoRequest()))
    assert info.drafters == OF_A_DRAFT
    assert info.vocab_size == distribution.VOCABULARY
