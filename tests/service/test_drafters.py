"""Every drafter through the real services: the text is that without speculation; a model stops where it is unsure."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from specpair.speculation import predicted_proposal
from tests.reference import last_logits
from tests.service.drafting import (
    OF_A_DRAFT,
    PROMPTS,
    RULES,
    Served,
    close,
    every_drafter,
    every_rule,
    generate,
    load_plain_draft,
    open_sequence,
    propose,
    write_table,
)
from tests.services import draft_config, engine_config, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
async def wide(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A pair of 64 tokens, with draft of everything."""
    folder = tmp_path_factory.mktemp("models")
    target, draft = make_model(folder / "target", seed=1), make_model(folder / "draft", seed=2)
    table = write_table(folder / "tables", 64)
    async with running_pair(engine_config(target), replace(draft_config(draft), table=table)) as pair:
        yield Served(pair, load_plain(target))
        await pair.check_clean()


@every_drafter
async def test_greedy_output_is_that_without_speculation(wide: Served, drafter: Drafter) -> None:
    expected = [generate_greedily(wide.model, prompt, 24) for prompt in PROMPTS]
    accepted = 0
    for rule in RULES.values():
        for count in (1, 5):
            fields = {"temperature": 0, "rule": rule, "num_speculative_tokens": count}
            outputs = await asyncio.gather(*(generate(wide.pair, drafter, 24, prompt, **fields) for prompt in PROMPTS))
            assert [output.token_ids for output in outputs] == expected
            accepted += sum(output.summary.speculation.accepted_token_count for output in outputs)
    if drafter in (Drafter.NGRAM, Drafter.PROMPT_LOOKUP, Drafter.NGRAM_MODEL):
        assert accepted > 100, "tiny models go round in circles, which these must see"


@every_drafter
async def test_coupled_output_is_that_without_speculation(wide: Served, drafter: Drafter) -> None:
    """Seen to speculate, so that the likeness says something."""
    drafted = accepted = 0
    for seed in (11, 12):
        fields = {"rule": RULES["coupled"], "seed": seed, "temperature": 0.8}
        for prompt in PROMPTS:
            alone = await generate(wide.pair, None, 24, prompt, **{**fields, "num_speculative_tokens": 0})
            output = await generate(wide.pair, drafter, 24, prompt, **fields)
            assert output.token_ids == alone.token_ids
            drafted += output.summary.speculation.draft_token_count
            accepted += output.summary.speculation.accepted_token_count
    assert 0 < accepted < drafted


async def test_the_coupled_noise_raises_acceptance(wide: Served) -> None:
    """The drafter chooses with the target's noise, from the row that it would draw from."""

    async def accepted(**fields: Any) -> int:
        outputs = await asyncio.gather(
            *(
                generate(wide.pair, Drafter.BIGRAM, 40, [seed], seed=seed, temperature=2.0, **fields)
                for seed in range(20)
            )
        )
        return sum(output.summary.speculation.accepted_token_count for output in outputs)

    of_coupled = await accepted(rule=RULES["coupled"])
    assert of_coupled > 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            predicted_proposal, "choose_among", lambda tokens, weights, seed, position: tokens[position % len(tokens)]
        )
        assert await accepted(rule=RULES["coupled"]) < of_coupled


async def test_ids_beyond_the_targets_are_not_proposed(wide: Served) -> None:
    """The model's vocabulary may be padded further; its drafters keep to the target's."""
    draft = wide.pair.draft
    assert draft is not None
    for drafter in OF_A_DRAFT:
        await open_sequence(draft, "s", [1, 2, 63, 1, 2], vocab_size=3, drafter=drafter_to_proto(drafter))
        proposed = (await propose(draft, "s", 0, 5, 5)).proposal.token_ids
        assert proposed or drafter in (Drafter.NGRAM, Drafter.PROMPT_LOOKUP)
        assert all(token < 3 for token in proposed)
        await close(draft, "s")


async def test_the_chain_names_the_link_that_proposed(wide: Served) -> None:
    draft = wide.pair.draft
    assert draft is not None
    await open_sequence(draft, "s", [1, 2, 3], drafter=drafter_to_proto(Drafter.NGRAM_MODEL), vocab_size=64)
    by_model = await propose(draft, "s", 0, 3, 2)
    by_ngrams = await propose(draft, "s", 1, 3, 2, appended_token_ids=[1, 2])
    again_by_model = await propose(draft, "s", 2, 5, 2, appended_token_ids=[9])
    await close(draft, "s")
    assert [r.drafter for r in (by_model, by_ngrams, again_by_model)] == [
        drafter_to_proto(drafter) for drafter in (Drafter.MODEL, Drafter.NGRAM, Drafter.MODEL)
    ]
    assert [r.batch_size for r in (by_model, by_ngrams, again_by_model)] == [1, 0, 1]
    plain = load_plain_draft(draft)
    assert list(by_ngrams.proposal.token_ids) == [3, 1]
    assert list(again_by_model.proposal.token_ids) == generate_greedily(plain, [1, 2, 3, 1, 2, 9], 2)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@every_rule
async def test_the_model_stops_where_it_is_unsure(wide: Served, rule: str, temperature: float) -> None:
    """Behind the first tokens to which it gives together too little at temperature 1; what it draws stays the same."""
    draft = wide.pair.draft
    assert draft is not None
    plain = load_plain_draft(draft)
    lengths = set()
    for seed in range(6):
        fields = {"sampling": {"seed": seed, "temperature": temperature}, "rule": RULES[rule], "vocab_size": 64}
        await open_sequence(draft, "s", [seed, 2, 3], **fields)
        whole = list((await propose(draft, "s", 0, 3, 6)).proposal.token_ids)
        for step, least in enumerate((0.03, 0.3, 0.9), start=1):
            await close(draft, "s")
            await open_sequence(draft, "s", [seed, 2, 3], **fields)
            # The step is the key of the draws, so it stays the same.
            stopped = list((await propose(draft, "s", 0, 3, 6, min_confidence=least)).proposal.token_ids)
            assert stopped == whole[: believed_in(plain, [seed, 2, 3], whole, least)], step
            lengths.add(len(stopped))
        await close(draft, "s")
    assert len(lengths) > 1


def believed_in(model: Any, prompt: list[int], tokens: list[int], least: float) -> int:
    confidence = 1.0
    for i, token in enumerate(tokens):
        logits = last_logits(model, [*prompt, *tokens[:i]])
        confidence *= float(np.exp(logits[token] - logits.max()) / np.exp(logits - logits.max()).sum())
        if confidence < least:
            return i + 1
    return len(tokens)


@pytest.mark.usefixtures("by_numpy")  # token by token; test_native_chains.py sees to proposals drawn whole
async def test_a_stop_saves_the_next_forward_pass(wide: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = wide.pair.draft
    assert draft is not None
    runner: Any = draft.host.engine._turns.runner
    passes = []
    forward = runner.forward
    monkeypatch.setattr(runner, "forward", lambda batch: passes.append(batch) or forward(batch))
    await open_sequence(draft, "s", [1, 2, 3], vocab_size=64, sampling={"seed": 3, "temperature": 5.0})
    assert len((await propose(draft, "s", 0, 3, 4, min_confidence=1.0)).proposal.token_ids) == 1
    before = len(passes)
    await propose(draft, "s", 1, 3, 4, min_confidence=1.0)
    assert len(passes) == before + 1
    await propose(draft, "s", 2, 3, 4)
    assert len(passes) == before + 5
    await close(draft, "s")
