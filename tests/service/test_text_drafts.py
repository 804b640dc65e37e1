"""Drafters that read nothing but the text run in the coordinator: they draw what a draft service would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command.info import is_ready
from coordinator.outputs.text_draft import TextDraft
from draft_service.config import DraftConfig
from specpair.errors import InvalidFieldError
from specpair.options import FROM_TEXT, Drafter, Encoding, Merge, Rule, SamplingOptions, SequenceOptions
from specpair.rpc.messages import drafter_to_proto, encoding_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2
from tests.service.drafting import close, generate, open_sequence, propose, refused
from tests.services import RunningModel, RunningPair, draft_config, engine_config, running_draft, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

pytestmark = pytest.mark.timeout(600)

VOCABULARY = 9
COUNT = 5
PROMPT = [1, 2, 3, 4] * 5
every_drafter = pytest.mark.parametrize("drafter", FROM_TEXT)


@pytest.fixture(scope="module")
async def service() -> AsyncIterator[RunningModel]:
    config = DraftConfig(drafter=Drafter.NGRAM, max_model_len=200, max_num_seqs=2, max_num_speculative_tokens=8)
    async with running_draft(config) as draft:
        yield draft


def some_text(seed: int, count: int) -> list[int]:
    """A text that repeats itself here and there."""
    generator = np.random.default_rng(seed)
    words = generator.integers(VOCABULARY, size=(6, 4))
    return words[generator.integers(len(words), size=count)].flatten().tolist()


@every_drafter
@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_they_draw_what_a_draft_service_draws(
    service: RunningModel, drafter: Drafter, rule: Rule, temperature: float, encoding: Encoding
) -> None:
    sampling: dict[str, Any] = {"temperature": temperature, "seed": 11, "top_p": 0.9}
    options = SequenceOptions(sampling=SamplingOptions(**sampling), rule=rule, vocab_size=VOCABULARY, encoding=encoding)
    text, drawn = some_text(3, 24), 0
    local = TextDraft(drafter, options, 8, COUNT, cooldown=1.0)
    fields = {
        "rule": rule_to_proto(rule),
        "drafter": drafter_to_proto(drafter),
        "prompt_length": 8,
        "encoding": encoding_to_proto(encoding),
    }
    await open_sequence(service, "s", text[:8], sampling=sampling, vocab_size=VOCABULARY, **fields)
    held = 8
    for step, length in enumerate(range(9, len(text), 7), start=1):
        answer = await propose(service, "s", step, held, COUNT, appended_token_ids=text[held:length])
        own = await local.propose(step, text[:length], COUNT)
        assert own is not None
        assert own.proposal.SerializeToString(deterministic=True) == answer.proposal.SerializeToString(
            deterministic=True
        )
        assert list(local.guess(step, text[:length], COUNT)) == list(own.token_ids)
        held, drawn = length, drawn + len(own.token_ids)
    assert drawn > 20
    await close(service, "s")


@pytest.fixture(scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RunningPair, Any]]:
    """A coordinator with a target and no draft service."""
    folder = make_model(tmp_path_factory.mktemp("models") / "target", seed=1)
    async with running_pair(engine_config(folder), local_drafters=("prompt-lookup",)) as pair:
        yield pair, load_plain(folder)
        await pair.check_clean()


@every_drafter
async def test_without_a_draft_service_they_propose(alone: tuple[RunningPair, Any], drafter: Drafter) -> None:
    pair, model = alone
    answer = await generate(pair, drafter, 24, PROMPT, temperature=0.0)
    assert answer.token_ids == generate_greedily(model, PROMPT, 24)
    spoken = answer.summary.speculation
    assert spoken.draft_token_count > 0 and spoken.drafter == drafter_to_proto(drafter)


async def test_one_that_the_coordinator_was_given_is_the_default(alone: tuple[RunningPair, Any]) -> None:
    answer = await generate(alone[0], None, 24, PROMPT, temperature=0.0)
    assert answer.summary.speculation.drafter == drafter_to_proto(Drafter.PROMPT_LOOKUP)
    assert answer.summary.speculation.draft_token_count > 0


async def test_two_of_them_make_a_tree_without_a_service(alone: tuple[RunningPair, Any]) -> None:
    pair, model = alone
    answer = await generate(pair, None, 24, PROMPT, temperature=0.0, drafts=["ngram", "prompt-lookup"])
    assert answer.token_ids == generate_greedily(model, PROMPT, 24)
    assert answer.summary.speculation.draft_token_count > 0


async def test_they_are_merged_by_default_where_the_coordinator_says_so(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "target", seed=1)
    async with running_pair(engine_config(folder), local_drafters=FROM_TEXT, merge=Merge.TREE) as pair:
        info = await pair.coordinator.GetPairInfo(coordinator_service_pb2.GetPairInfoRequest())
        assert info.merge == coordinator_service_pb2.MERGE_MODE_TREE
        answer = await generate(pair, None, 24, PROMPT, temperature=0.0)
        assert [draft.name for draft in answer.summary.speculation.drafts] == list(FROM_TEXT)
        await pair.check_clean()


async def test_others_need_a_service(alone: tuple[RunningPair, Any]) -> None:
    with refused(InvalidFieldError, r"drafts\[0\]: is 'bigram'; there are ngram, prompt-lookup"):
        await generate(alone[0], None, 4, PROMPT, drafts=["bigram"])


async def test_with_a_seed_of_its_own_an_output_repeats(alone: tuple[RunningPair, Any]) -> None:
    answers = [await generate(alone[0], Drafter.NGRAM, 24, PROMPT, seed=7) for _ in range(2)]
    assert answers[0].token_ids == answers[1].token_ids


async def test_they_are_counted_and_valued(alone: tuple[RunningPair, Any]) -> None:
    info = await alone[0].coordinator.GetPairInfo(coordinator_service_pb2.GetPairInfoRequest())
    assert [draft.name for draft in info.drafts] == ["prompt-lookup"] and not info.HasField("draft")
    assert info.HasField("proposal_worth") and is_ready(info)


@pytest.mark.parametrize("encoding", list(Encoding))
async def test_they_are_merged_with_a_model_in_every_encoding(tmp_path: Path, encoding: Encoding) -> None:
    folders = [make_model(tmp_path / name, seed=seed) for seed, name in enumerate(("target", "draft"))]
    drafts = {"a": draft_config(folders[1])}
    async with running_pair(engine_config(folders[0]), drafts=drafts, local_drafters=("ngram",)) as pair:
        answer = await generate(
            pair, None, 60, PROMPT, drafts=["a", "ngram"], encoding=encoding_to_proto(encoding), seed=5
        )
        counts = {draft.name: draft for draft in answer.summary.speculation.drafts}
        assert answer.summary.speculation.fallback_count == 0
        assert all(counts[name].draft_token_count > 20 for name in ("a", "ngram"))
        await pair.check_clean()


async def test_the_draft_service_hears_nothing_of_them(tmp_path: Path) -> None:
    folders = [make_model(tmp_path / name, seed=seed) for seed, name in enumerate(("target", "draft"))]
    async with running_pair(engine_config(folders[0]), draft_config(folders[1])) as pair:
        assert pair.draft is not None
        opened = list[str]()
        open_at, pair.draft.host.open = pair.draft.host.open, None  # type: ignore[method-assign]

        async def note(name: str, *arguments: Any) -> Any:
            opened.append(name)
            return await open_at(name, *arguments)

        pair.draft.host.open = note  # type: ignore[method-assign]
        await generate(pair, Drafter.NGRAM, 12, PROMPT)
        assert not opened
        await generate(pair, Drafter.MODEL, 12, PROMPT)
        assert len(opened) == 1
        await pair.check_clean()
