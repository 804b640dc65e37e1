"""A draft service that accelerates its own model proposes what it proposes without, and the pair generates the same."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draft_service.host import DraftHost
from specpair.errors import ModelRefusedError
from specpair.options import Drafter, OwnDraft, SamplingOptions
from specpair.rpc.messages import drafter_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1 import sequence_service_pb2 as sequences_pb
from tests.reference import coupled_choice, plain_loop
from tests.service.distributions import RULES
from tests.service.drafting import close, open_sequence, propose
from tests.service.metrics_load import total
from tests.services import RunningModel, RunningPair, draft_config, engine_config, running_draft, running_pair
from tests.tiny_models import generate_greedily, load_plain, make_model, make_variation

VOCABULARY = 12
PROMPT = [5, 2, 7, 2, 11, 5, 2, 7, 2, 11, 5, 2]
COUNT = 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small vocabulary repeats itself, so that n-grams guess something."""
    target = make_model(tmp_path_factory.mktemp("target"), seed=1, vocab_size=VOCABULARY)
    return target, make_variation(tmp_path_factory.mktemp("draft"), target, spread=0.03)


@pytest.fixture(scope="module")
def second(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that often draws what the draft draws."""
    return str(make_variation(tmp_path_factory.mktemp("second"), folders[1], spread=0.05, seed=2))


@pytest.fixture(scope="module")
async def pair(folders: tuple[Path, Path]) -> AsyncIterator[RunningPair]:
    target, draft = folders
    own = replace(draft_config(draft), own_draft=OwnDraft.NGRAM, own_num_speculative_tokens=3)
    async with running_pair(engine_config(target), own) as running:
        yield running


@pytest.mark.parametrize("by", [OwnDraft.NGRAM, OwnDraft.PROMPT_LOOKUP, "model"])
async def test_proposals_are_the_same_in_fewer_passes(folders: tuple[Path, Path], second: str, by: str) -> None:
    own = replace(draft_config(folders[1]), own_draft=second if by == "model" else by)
    text = [*PROMPT, *generate_greedily(load_plain(folders[1]), PROMPT, 60)]  # it runs in circles, as small models do
    prompt, appended = text[:-3], text[-3:]
    fewer = 0
    async with running_draft(draft_config(folders[1])) as plain, running_draft(own) as accelerated:
        for seed in range(4):
            for rule in RULES.values():
                for temperature in (0.0, 0.4):
                    fields = {"rule": rule, "sampling": {"seed": seed, "temperature": temperature}, "vocab_size": 12}
                    answers = []
                    for draft in (plain, accelerated):
                        await open_sequence(draft, "s", prompt, **fields)
                        answers.append(await propose(draft, "s", 0, len(prompt), 8))
                        answers.append(await propose(draft, "s", 1, len(prompt), 8, appended_token_ids=appended))
                        await close(draft, "s")
                    for one, other in zip(answers[:2], answers[2:], strict=True):
                        assert one.proposal.token_ids == other.proposal.token_ids
                        kinds = [answer.proposal.distributions.WhichOneof("encoding") for answer in (one, other)]
                        assert kinds[0] == kinds[1] and one.pass_count == 0
                        assert other.pass_count == 8 - other.accepted_guess_count
                        fewer += other.accepted_guess_count
        assert fewer > 20
        assert total(accelerated.registry, "specpair_draft_accepted_guesses_total") == fewer
        assert total(accelerated.registry, "specpair_draft_guessed_tokens_total") >= fewer
        assert total(accelerated.registry, "specpair_draft_guessing_seconds_total") > 0.0
        await accelerated.check_clean()


def guesser_of(draft: RunningModel) -> Any:
    assert isinstance(draft.host, DraftHost) and draft.host.model is not None and draft.host.model.guessing is not None
    return draft.host.model.guessing.by


async def test_a_second_model_follows_rollbacks_and_forks_and_leaves_nothing(
    folders: tuple[Path, Path], second: str
) -> None:
    own = replace(draft_config(folders[1]), own_draft=second)
    async with running_draft(own) as draft, running_draft(draft_config(folders[1])) as plain:
        for one in (draft, plain):
            await open_sequence(one, "s", PROMPT, vocab_size=VOCABULARY)
        answers = []
        for one in (draft, plain):
            given = [await propose(one, "s", 0, len(PROMPT), 6)]
            given.append(await propose(one, "s", 1, len(PROMPT), 6, appended_token_ids=[3, 4, 5, 6]))
            given.append(await propose(one, "s", 2, len(PROMPT) - 2, 6, appended_token_ids=[1, 0, 1]))
            await one.sequences.ForkSequence(sequences_pb.ForkSequenceRequest(sequence_id="s", forked_sequence_id="t"))
            given.append(await propose(one, "t", 3, len(PROMPT) + 1, 6, appended_token_ids=[2]))
            answers.append([answer.proposal.token_ids for answer in given])
        assert answers[0] == answers[1]
        guesser = guesser_of(draft)
        assert guesser.cache.block_counts().used > 0
        for name in ("s", "t"):
            await close(draft, name)
        await draft.host.engine.call(lambda: guesser.forget(set()))
        await draft.host.engine.call(guesser.cache.check_integrity)
        assert guesser.cache.block_counts().used == 0
        await draft.check_clean()


async def test_a_second_model_that_fails_costs_its_guesses_alone(
    folders: tuple[Path, Path], second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(draft_config(folders[1]), own_draft=second)
    async with running_draft(own) as draft:
        await open_sequence(draft, "s", PROMPT, vocab_size=VOCABULARY)
        guesser = guesser_of(draft)
        whole = await propose(draft, "s", 0, len(PROMPT), 6)
        assert whole.pass_count == 6 - whole.accepted_guess_count < 6
        monkeypatch.setattr(guesser._turns.runner, "forward", None)
        answer = await propose(draft, "s", 1, len(PROMPT), 6, appended_token_ids=[3])
        assert len(answer.proposal.token_ids) == answer.pass_count == 6
        monkeypatch.undo()
        answer = await propose(draft, "s", 2, len(PROMPT) + 1, 6, appended_token_ids=list(whole.proposal.token_ids))
        assert answer.accepted_guess_count > 0


async def test_a_second_model_with_other_tokens_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_model(tmp_path, seed=1, vocab_size=VOCABULARY + 1)
    with pytest.raises(ModelRefusedError, match="--own-draft: it has 13 token ids, the draft 12"):
        async with running_draft(replace(draft_config(folders[1]), own_draft=str(other))):
            pass
    with pytest.raises(ModelRefusedError, match=r"--own-draft: .*nowhere"):
        async with running_draft(replace(draft_config(folders[1]), own_draft=str(tmp_path / "nowhere"))):
            pass


@pytest.mark.parametrize("options", [{}, {"frequency_penalty": 0.4, "repetition_penalty": 1.1}], ids=["plain", "some"])
async def test_the_text_is_the_targets(pair: RunningPair, folders: tuple[Path, Path], options: dict[str, Any]) -> None:
    model = load_plain(folders[0])
    greedy = plain_loop(
        model, PROMPT, SamplingOptions(temperature=0.0, **options), COUNT, lambda row, _: int(row.argmax())
    )
    fields: dict[str, Any] = {"num_speculative_tokens": 6, "ignore_eos": True, **options}
    output = await pair.generate(PROMPT, COUNT, temperature=0.0, **fields)
    assert output.token_ids == greedy
    own = output.summary.speculation.own_draft
    assert 0 < own.accepted_guess_count <= own.guessed_token_count
    assert own.pass_count == output.summary.speculation.draft_token_count - own.accepted_guess_count
    for seed in range(3):
        expected = plain_loop(model, PROMPT, SamplingOptions(seed=seed, **options), COUNT, coupled_choice(seed))
        coupled = sampling_pb2.ACCEPTANCE_RULE_COUPLED
        assert (await pair.generate(PROMPT, COUNT, seed=seed, rule=coupled, **fields)).token_ids == expected
    await pair.check_clean()


async def test_trees_and_other_drafters_are_as_they_were(pair: RunningPair) -> None:
    for fields in ({"num_tree_tokens": 8}, {"drafter": drafter_to_proto(Drafter.NGRAM)}):
        output = await pair.generate(
            PROMPT, COUNT, temperature=0.0, num_speculative_tokens=4, ignore_eos=True, **fields
        )
        assert not output.summary.speculation.HasField("own_draft")
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert (info.draft.own_draft, info.draft.own_num_speculative_tokens) == ("ngram", 3)
    assert (info.target.own_draft, info.target.own_num_speculative_tokens) == ("", 0)
