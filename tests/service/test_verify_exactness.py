"""`verify-exactness` against real services: an honest pair passes, and each way of getting it wrong is caught.

The models are bigram tables, written into real Llama weights: their distributions are chosen so that what the servers
do wrong shows within few draws. Seeds are fixed, so the outcome is too.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import specpair.drafting as drafting
import target_service.judging as judging
from command.exactness.run import Wishes, describe, settings_for, verify
from command.failures import CommandError
from coordinator.peers.ahead_blocks import AheadBlocks, BlockKey, PreparedBlock
from draft_service.host import DraftHost
from specpair.client import channel as client
from specpair.errors import InvalidFieldError
from specpair.exactness.plan import Kind, Settings
from specpair.exactness.report import Report, Verdict
from specpair.options import Rule, SamplingOptions, WorkAhead
from specpair.speculation import verification
from specpair.speculation.arrays import Array
from specpair.speculation.count_row import TOTAL
from specpair.speculation.randomness import BITS, Domain, draw_bits, random_words, uniforms
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model

pytestmark = pytest.mark.timeout(600)

Table = list[list[float]]

PLAIN = {"plain": SamplingOptions()}
FLOOR = 1e-9
HONEST_TARGET = [[0.4, 0.3, 0.2, 0.1], [0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.3, 0.2], [0.05, 0.15, 0.3, 0.5]]
HONEST_DRAFT = [[0.2, 0.4, 0.3, 0.1], [0.3, 0.3, 0.3, 0.1], [0.25, 0.25, 0.2, 0.3], [0.1, 0.1, 0.3, 0.5]]


def make_bigrams(folder: Path, table: Table) -> Path:
    """A Llama whose layers add nothing, so that the last token alone decides the logits: those of its row."""
    size, width = len(table), 32
    make_model(folder, vocab_size=size, num_hidden_layers=1, hidden_size=width)
    path = folder / "model.safetensors"
    weights = {name: torch.zeros_like(weight) for name, weight in load_file(path).items()}
    weights["model.norm.weight"].fill_(1.0)
    weights["model.embed_tokens.weight"][:, :size] = torch.eye(size)
    # The norm makes of a one-hot vector one of length sqrt(width).
    weights["lm_head.weight"][:, :size] = torch.tensor(table).clamp_min(FLOOR).log().T / width**0.5
    save_file(weights, path, metadata={"format": "pt"})
    return folder


async def run(tmp_path: Path, target: Table, draft: Table, **changes: Any) -> Report:
    """The report on a pair of these models; `changes` are fields of Settings."""
    paths = make_bigrams(tmp_path / "target", target), make_bigrams(tmp_path / "draft", draft)
    async with running_pair(*(engine_config(path, max_num_seqs=256) for path in paths), draft_timeout=30.0) as pair:
        settings = replace(SETTINGS, **changes)
        report = await verify(
            pair.coordinator, await describe(pair.coordinator), settings, alpha=1e-3, concurrency=16, show=no_show
        )
    return report


@pytest.fixture(autouse=True)
def patient_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """All services are in this process, which a busy machine may stop for a second: no reason to go without a draft."""
    monkeypatch.setattr(client, "PING_TIMEOUT_MS", 30_000)


def no_show(name: str, total: int) -> Callable[[], None]:
    return lambda: None


SETTINGS = Settings(
    prompts=((0, 1),),
    draws=80,
    seed=7,
    option_sets=PLAIN,
    greedy_tokens=12,
    sequences=10,
    sequence_tokens=10,
)

NO_EQUALITIES = {"greedy_tokens": 2, "sequences": 1, "sequence_tokens": 5}
"""As few checks of equality as can be: sabotage must show in the distributions."""


def caught(report: Report) -> bool:
    """By the comparison of distributions, which does not need the help of the other checks."""
    return Verdict.DIFFERENT in {entry.verdict for entry in report.comparisons}


@pytest.mark.few_cases("off")
@pytest.mark.parametrize("work_ahead", [WorkAhead.OFF, WorkAhead.ON])
async def test_an_honest_pair_passes(tmp_path: Path, work_ahead: WorkAhead) -> None:
    options = {"penalties": SamplingOptions(top_k=3, repetition_penalty=1.3, presence_penalty=0.5)}
    report = await run(tmp_path, HONEST_TARGET, HONEST_DRAFT, option_sets=PLAIN | options, work_ahead=work_ahead)
    assert report.passed, report
    assert {entry.verdict for entry in report.equalities} == {Verdict.SAME}
    assert {entry.verdict for entry in report.comparisons} == {Verdict.SAME}
    assert {entry.kind for entry in report.equalities} == {
        kind for kind in Kind if kind is not Kind.AHEAD or work_ahead is WorkAhead.ON
    }
    assert len(report.comparisons) == 2 * 3 * 4
    assert report.detectable_distance is not None and report.detectable_distance < 0.7
    for entry in report.speculated:
        assert 0.2 < entry.acceptance_rate < 1.0 and entry.fallback_count == 0


@pytest.mark.few_cases()
async def test_a_proposal_that_was_prepared_for_another_outcome_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens are not those that the draft would have proposed: the output has the right distribution, but not the
    same bits as without it."""
    take = AheadBlocks.take

    def take_any(blocks: AheadBlocks, key: BlockKey) -> PreparedBlock | None:
        others = (block for block in blocks.of_step(key.step) if block.key.accepted_count >= key.accepted_count)
        return take(blocks, key) or next(others, None)  # one after fewer tokens may be too long near the end

    monkeypatch.setattr(AheadBlocks, "take", take_any)
    report = await run(tmp_path, HONEST_TARGET, HONEST_DRAFT, work_ahead=WorkAhead.ON, draws=20, sequences=40)
    different = {(entry.kind, entry.rule) for entry in report.equalities if entry.verdict is Verdict.DIFFERENT}
    assert (Kind.AHEAD, Rule.TOKEN) in different or (Kind.AHEAD, Rule.BLOCK) in different
    assert not {kind for kind, _ in different} & {Kind.GREEDY, Kind.COUPLED}, "what does not depend on proposals"


async def test_acceptance_with_the_drafts_noise_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control 1: a token is accepted by the number that chose it."""

    def drafting_noise(works: list[judging.VerifyWork], most: int) -> np.ndarray:
        return np.stack(
            [uniforms(random_words(w.options.sampling.seed, Domain.DRAFT, w.call.step, 0, most)) for w in works]
        )

    monkeypatch.setattr(judging, "acceptance_noise", drafting_noise)
    await must_be_caught(tmp_path, [0.38, 0.26, 0.36], [0.46, 0.47, 0.07], draws=160)
    await must_be_caught(tmp_path, [0.24, 0.74, 0.02], [0.47, 0.02, 0.51], rules=(Rule.TOKEN,), draws=220)


@pytest.mark.few_cases()
@pytest.mark.usefixtures("by_numpy")
async def test_the_block_rule_keyed_by_position_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control 2: what a round saw of the noise behind its last token comes again in the next."""

    def next_bits(work: drafting.Drafting) -> int:
        return draw_bits(work.options.sampling.seed, Domain.DRAFT, len(work.sequence.tokens), 0)

    def acceptance_noise(works: list[judging.VerifyWork], most: int) -> np.ndarray:
        return np.array([[draw(work, Domain.ACCEPT, work.first_position + i) for i in range(most)] for work in works])

    def next_keys(works: list[judging.VerifyWork]) -> list[np.ndarray]:
        return [np.array([work.options.sampling.seed for work in works]), np.array([w.first_position for w in works])]

    def draw(work: judging.VerifyWork, domain: Domain, position: int) -> float:
        return draw_bits(work.options.sampling.seed, domain, position, 0) * 2.0**-BITS

    monkeypatch.setattr(drafting, "next_bits", next_bits)
    monkeypatch.setattr(judging, "acceptance_noise", acceptance_noise)
    monkeypatch.setattr(judging, "next_keys", next_keys)
    await must_be_caught(tmp_path, [0.2, 0.8], [0.0, 1.0], num_speculative_tokens=5, draws=280)


@pytest.mark.usefixtures("by_numpy")
async def test_dropping_a_drawn_token_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control 3: the draft ends its proposal before a token that it gave little probability."""
    take = drafting.take

    def take_if_probable(work: drafting.Drafting, token: int) -> None:
        row = work.counts[-1]
        if dict(zip(row.token_ids, row.counts, strict=True))[token] < 0.25 * TOTAL:
            work.counts.pop()
            work.done = True
        else:
            take(work, token)

    monkeypatch.setattr(drafting, "take", take_if_probable)
    await must_be_caught(tmp_path, [0.75, 0.11, 0.14], [0.7, 0.18, 0.12], draws=150)


@pytest.mark.few_cases()
@pytest.mark.usefixtures("by_numpy")
async def test_a_block_residual_without_its_scale_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control 4: max(p - q, 0) after n accepted tokens instead of max(P_n p - q, 0).

    The first token is always 0. The draft goes on with 1, which is right in 6 of 10 cases, and so P_1 = 0.6; what may
    come after it is mostly 3, and that is where the draft put P_1 times as much.
    """
    thresholds = verification.acceptance_thresholds

    def unscaled(target: Array, block: verification.Block) -> verification.Thresholds:
        right = thresholds(target, block)
        return verification.Thresholds(right.acceptance, np.ones_like(right.scales))

    monkeypatch.setattr(verification, "acceptance_thresholds", unscaled)
    only_0 = [1.0, 0.0, 0.0, 0.0, 0.0]
    target = [[0.0, 0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.0, 0.8, 0.2], only_0, only_0, only_0]
    draft = [[0.0, 1.0, 0.0, 0.0, 0.0], [0.52, 0.0, 0.0, 0.48, 0.0], only_0, only_0, only_0]
    report = await run(
        tmp_path,
        target,
        draft,
        rules=(Rule.BLOCK,),
        num_speculative_tokens=2,
        prompts=((0, 2),),
        draws=800,
        **NO_EQUALITIES,
    )
    assert caught(report)


async def test_accepting_everything_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control 5: no token that may come at all is ever rejected."""
    monkeypatch.setattr(judging, "acceptance_noise", lambda works, most: np.zeros((len(works), most)))
    await must_be_caught(tmp_path, [0.9, 0.1], [0.1, 0.9], rules=(Rule.BLOCK, Rule.TOKEN), draws=40)


async def test_coupled_noise_that_depends_on_the_batch_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes out is distributed as it should be, but the same seed gives other tokens."""
    choices = judging.choices

    def keyed_by_row(target: Tensor, seeds: list[int], positions: list[int]) -> Any:
        return choices(target, seeds, range(len(positions)))

    monkeypatch.setattr(judging, "choices", keyed_by_row)
    report = await run(
        tmp_path, HONEST_TARGET, HONEST_DRAFT, rules=(Rule.COUPLED,), draws=50, sequences=20, greedy_tokens=2
    )
    different = {entry.kind for entry in report.equalities if entry.verdict is Verdict.DIFFERENT}
    assert Kind.COUPLED in different and not caught(report) and not report.passed


async def must_be_caught(tmp_path: Path, target: list[float], draft: list[float], **changes: Any) -> None:
    """Under each rule, on a pair without memory."""
    tables = ([row] * len(row) for row in (target, draft))
    report = await run(tmp_path, *tables, **{"rules": (Rule.BLOCK,), **NO_EQUALITIES, **changes})
    for entry in report.speculated:
        own = replace(report, comparisons=[c for c in report.comparisons if c.rule is entry.rule])
        assert caught(own), entry.rule


async def test_a_server_without_a_draft_is_refused(tmp_path: Path) -> None:
    target = make_bigrams(tmp_path / "target", HONEST_TARGET)
    async with running_pair(engine_config(target)) as pair:
        with pytest.raises(CommandError, match="has no draft"):
            await describe(pair.coordinator)


async def test_a_draft_that_does_not_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests are answered, by the target alone: to compare them would prove nothing."""

    async def break_off(*_: object) -> None:
        raise RuntimeError("no proposals today")

    monkeypatch.setattr(DraftHost, "propose", break_off)
    with pytest.raises(CommandError, match="proposed nothing, or failed in most rounds, under rule token"):
        await run(tmp_path, HONEST_TARGET, HONEST_DRAFT, rules=(Rule.TOKEN,), draws=50, **NO_EQUALITIES)


async def test_the_servers_limits_are_kept_to(tmp_path: Path) -> None:
    paths = make_bigrams(tmp_path / "target", HONEST_TARGET), make_bigrams(tmp_path / "draft", HONEST_DRAFT)
    wishes = Wishes(prompts=None, num_speculative_tokens=None, rules=(Rule.BLOCK,), draws=50, seed=1)
    async with running_pair(*map(engine_config, paths), num_speculative_tokens=1, max_num_speculative_tokens=2) as pair:
        info = await describe(pair.coordinator)
        settings = await settings_for(pair.coordinator, info, wishes)
        assert settings.num_speculative_tokens == settings.max_num_speculative_tokens == 2
        assert len(set(settings.prompts)) == 2
        assert all(isinstance(prompt, tuple) and max(prompt) < 4 for prompt in settings.prompts)
        with pytest.raises(InvalidFieldError, match="--num-speculative-tokens: is 3; it must be between 1 and 2"):
            await settings_for(pair.coordinator, info, replace(wishes, num_speculative_tokens=3))
        info.max_num_speculative_tokens = 0
        with pytest.raises(CommandError, match="does not speculate"):
            await settings_for(pair.coordinator, info, wishes)


async def test_the_command(tmp_path: Path) -> None:
    """As a user runs it: a process of its own, which ends with status 0 and a document."""
    paths = make_bigrams(tmp_path / "target", HONEST_TARGET), make_bigrams(tmp_path / "draft", HONEST_DRAFT)
    async with running_pair(*map(engine_config, paths)) as pair:
        arguments = ["--address", pair.address, "--draws", "20", "--rule", "block", "--seed", "5", "--json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "command", "verify-exactness", *arguments, stdout=PIPE, stderr=PIPE
        )
        stdout, stderr = await process.communicate()
    assert (process.returncode, stderr) == (0, b"")
    document = json.loads(stdout)
    assert document["verdict"] == "pass" and document["seed"] == 5
    assert {entry["options"] for entry in document["comparisons"]} == {"plain", "top-k", "penalties"}
