"""Proposals beside plain rounds: no target sees them, and what they say is learned."""

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.adaptive import Decision, OutputLength
from coordinator.outputs.shadow_proposal import ShadowProposal
from coordinator.outputs.text_draft import TextDraft
from specpair.options import Drafter, Rule, SamplingOptions
from tests.unit.coordinator.fake_language import continuation
from tests.unit.coordinator.pair_bench import PROMPT, Bench, bench, collect

LENGTH = 4
AT = 4
"""Tokens of an output that has a shadow proposal beside its next round: one more than it had decisions."""
TOKENS = continuation(PROMPT, 30)
ADAPTIVE: dict[str, Any] = {"max_tokens": 30, "num_speculative_tokens": None, "drafter": Drafter.NGRAM}


@pytest.mark.parametrize(
    ("followed", "accepted", "is_settled"),
    [
        ((), 0, False),
        ((7,), 1, False),
        ((7, 8), 2, False),
        ((9,), 0, True),
        ((7, 9), 1, True),
        ((7, 8, 9), 3, True),
        ((7, 8, 5, 9), 2, True),
        ((7, 8, 9, 1), 3, True),
    ],
)
def test_it_is_settled_once_a_token_differs_or_all_have_come(
    followed: tuple[int, ...], accepted: int, is_settled: bool
) -> None:
    shadow, history = ShadowProposal((7, 8, 9), 4, 2), [1, 2, *followed]
    assert (shadow.accepted_count(history), shadow.is_settled(history)) == (accepted, is_settled)


def test_a_drafter_without_a_guess_has_none_right() -> None:
    shadow = ShadowProposal((), 3, 2)
    assert shadow.is_settled([1, 2]) and shadow.accepted_count([1, 2]) == 0


class Recorder:
    """What outputs guess, and what they learn from it."""

    def __init__(self) -> None:
        self.guess: list[int] = []
        """What is guessed."""
        self.guessed_at: list[int] = []
        self.made: list[tuple[int, int]] = []
        self.learned: list[tuple[int, int]] = []


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Adaptive outputs that propose nothing and have one shadow proposal."""
    rounds, recorder = list[bool](), Recorder()

    def choose(self: OutputLength, longest: int, *, is_ready: bool, is_due: bool, may_probe: bool) -> Decision:
        rounds.append(self._has_shadows)
        return Decision(0, shadow_length=LENGTH if rounds.count(True) == AT else 0)

    def guess(self: TextDraft, step: int, history: Sequence[int], count: int) -> Sequence[int]:
        recorder.guessed_at.append(len(history))
        return recorder.guess

    monkeypatch.setattr(OutputLength, "_choose", choose)
    monkeypatch.setattr(OutputLength, "add_guess", lambda self, *counts: recorder.made.append(counts))
    monkeypatch.setattr(OutputLength, "add_shadow", lambda self, *counts: recorder.learned.append(counts))
    monkeypatch.setattr(TextDraft, "guess", guess)
    return recorder


def counted(b: Bench, drafter: str = "ngram", rule: str = "coupled") -> list[float | None]:
    value, labels = b.pair.metrics.registry.get_sample_value, {"drafter": drafter, "rule": rule}
    return [value(f"specpair_shadow_{name}_total", labels) for name in ("tokens", "accepted_tokens")]


@pytest.mark.parametrize(("right", "drafted"), [(0, 4), (2, 4), (4, 4), (2, 2), (0, 0)])
async def test_what_it_says_is_learned_and_changes_no_round(recorder: Recorder, right: int, drafted: int) -> None:
    recorder.guess = [*TOKENS[AT : AT + right], *[96] * (drafted - right)]
    async with bench() as b:
        generation = await b.run(**ADAPTIVE, rule=Rule.COUPLED)
        assert recorder.guessed_at == [len(PROMPT) + AT] and recorder.made == [(LENGTH, drafted)]
        assert recorder.learned == [(LENGTH, right)]
        assert generation.acceptance.draft_token_count == 0
        assert b.target.promises.count(None) <= 2, "the rounds beside it are promised as any others"
        assert counted(b) == [LENGTH, right]


@pytest.mark.parametrize(
    ("right", "left", "expected"),
    [(4, 3, [(3, 3)]), (4, 4, [(4, 4)]), (2, 3, [(4, 2)]), (0, 1, [(4, 0)])],
)
async def test_of_one_that_the_output_ends_in_what_is_known_counts(
    recorder: Recorder, right: int, left: int, expected: list[tuple[int, int]]
) -> None:
    """`left` tokens come after it, the last of which no round follows."""
    recorder.guess = [*TOKENS[AT : AT + right], *[96] * (LENGTH - right)]
    async with bench() as b:
        await b.run(**{**ADAPTIVE, "max_tokens": AT + left}, rule=Rule.COUPLED)
        assert recorder.learned == expected


GREEDY, WARM = SamplingOptions(temperature=0.0), SamplingOptions(temperature=1.0)


@pytest.mark.parametrize(
    ("changes", "has_some"),
    [
        ({"rule": Rule.COUPLED, "sampling": WARM}, True),
        ({"rule": Rule.TOKEN, "sampling": GREEDY}, True),
        ({"rule": Rule.BLOCK, "sampling": GREEDY, "drafter": None, "drafts": ("prompt-lookup",)}, True),
        ({"rule": Rule.TOKEN, "sampling": GREEDY, "lenience": 0.5}, False),
        ({"rule": Rule.TOKEN, "sampling": WARM}, False),
        ({"rule": Rule.BLOCK, "sampling": WARM}, False),
        ({"rule": Rule.COUPLED, "sampling": GREEDY, "drafter": Drafter.MODEL}, False),
        ({"rule": Rule.COUPLED, "sampling": GREEDY, "num_tree_tokens": 6}, False),
        ({"rule": Rule.COUPLED, "sampling": GREEDY, "num_speculative_tokens": 0}, False),
    ],
)
async def test_only_where_the_text_says_what_would_be_accepted(
    recorder: Recorder, changes: dict[str, Any], has_some: bool
) -> None:
    async with bench() as b:
        await collect(b.generation(**{**ADAPTIVE, **changes}))
        assert bool(recorder.guessed_at) == bool(recorder.learned) == has_some
