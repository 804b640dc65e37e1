"""Several drafts of which one has another vocabulary and another is itself accelerated: the joint distribution of the
first tokens is the target's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from draft_service.config import DraftConfig
from specpair.options import OwnDraft
from tests.service.distributions import ENCODINGS, OPTIONS, PLAIN, PROMPT, RULES, VOCABULARY, Served, check_distribution
from tests.service.test_vocabularies import DRAFTS, SHAPE, TARGET
from tests.services import engine_config, running_pair
from tests.tiny_models import load_plain
from tests.tiny_tokenizers import make_speaking_model

pytestmark = pytest.mark.timeout(300)
THREE = ["other", "near", "ngram"]
DRAWS = 300


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The target's ids are more than the first draft's own, and fewer than what its rows are as wide as."""
    folder = tmp_path_factory.mktemp("models")

    def speaking(name: str, tokenizer: Any, seed: int, vocab_size: int) -> Path:
        return make_speaking_model(folder / name, tokenizer, seed=seed, vocab_size=vocab_size, **SHAPE)

    target = speaking("target", TARGET, 3, VOCABULARY)
    other, near = speaking("other", DRAFTS["unigram"][0], 4, DRAFTS["unigram"][1]), speaking("near", TARGET, 5, 4)
    drafts = {
        "other": DraftConfig(engine=engine_config(other)),
        "near": DraftConfig(engine=engine_config(near), own_draft=OwnDraft.NGRAM),
    }
    async with running_pair(engine_config(target), drafts=drafts, merge_wait=60.0) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@pytest.mark.few_cases("block-dense-repetition_penalty")
@pytest.mark.parametrize(
    ("rule", "encoding", "option"), [("token", "sparse", "plain"), ("block", "dense", "repetition_penalty")]
)
async def test_the_distribution_is_the_targets(served: Served, rule: str, encoding: str, option: str) -> None:
    options = PLAIN if option == "plain" else OPTIONS[option]
    fields: dict[str, Any] = {"rule": RULES[rule], "encoding": ENCODINGS[encoding], "drafts": THREE}
    await check_distribution(served, options, DRAWS, lengths=(2, 3), **fields)


async def test_all_take_part(served: Served) -> None:
    for encoding in ("sparse", "dense"):
        done = await served.pair.generate(
            PROMPT, 40, seed=3, num_speculative_tokens=3, encoding=ENCODINGS[encoding], drafts=THREE
        )
        assert done.summary.speculation.fallback_count == 0
        counts = {draft.name: draft.draft_token_count for draft in done.summary.speculation.drafts}
        assert min(counts.values()) > 0, encoding


async def test_coupled_output_is_that_without_speculation(served: Served) -> None:
    for seed in range(3):
        outputs = [
            await served.pair.generate(
                PROMPT, 40, seed=seed, num_speculative_tokens=count, rule=RULES["coupled"], drafts=THREE
            )
            for count in (0, 3)
        ]
        assert outputs[0].token_ids == outputs[1].token_ids
