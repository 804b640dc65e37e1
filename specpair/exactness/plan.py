"""Plans the requests, and what their outputs must have in common."""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from specpair.exactness.draws import Draw, Prompt
from specpair.options import Rule, SamplingOptions, WorkAhead

OPTION_SETS: Mapping[str, SamplingOptions] = {
    "plain": SamplingOptions(),
    "top-k": SamplingOptions(top_k=4),
    "penalties": SamplingOptions(top_k=4, repetition_penalty=1.3, presence_penalty=0.5),
}
"""The model without options, with many outcomes; a small support, whose few outcomes show small differences; and a
distribution that depends on earlier tokens, including those of the proposal."""

GREEDY_LENGTHS = (0, 1, 3, 8)
"""Tokens proposed per round in the greedy checks, up to the server's limit."""


class Kind(StrEnum):
    """Why outputs must be equal."""

    GREEDY = "greedy"
    """At temperature 0 there is no randomness."""
    COUPLED = "coupled"
    """The coupled rule gives the same output for the same seed, however many tokens are proposed."""
    SEEDS = "seeds"
    """The same request with the same seed gives the same output."""
    AHEAD = "work ahead"
    """The same request gives the same output whether or not the draft works ahead."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run."""

    prompts: tuple[Prompt, ...]
    draws: int
    """Outputs with speculation, and as many without, for each prompt, option set and rule."""
    seed: int
    """Seed of the run; it determines the seeds of all requests."""
    rules: tuple[Rule, ...] = tuple(Rule)
    num_speculative_tokens: int = 3
    max_num_speculative_tokens: int = 8
    """Most tokens per round that the server proposes."""
    option_sets: Mapping[str, SamplingOptions] = field(default_factory=lambda: OPTION_SETS)
    greedy_tokens: int = 64
    sequences: int = 60
    """Pairs of sampled outputs that must be equal, over all prompts."""
    sequence_tokens: int = 16
    work_ahead: WorkAhead | None = None
    """Whether the draft works ahead in every output with speculation; None for the server's default."""
    num_tree_tokens: int | None = None
    """Tokens of a tree at most, in every output with speculation; None for the server's default."""


@dataclass(frozen=True, kw_only=True)
class SampledTest:
    """Outputs with and without speculation, which must have the same distribution. All seeds differ."""

    prompt: Prompt
    options: str
    """Name of the option set."""
    rule: Rule
    lengths: tuple[int, ...]
    """How many of the first tokens to compare."""
    speculated: tuple[Draw, ...]
    plain: tuple[Draw, ...]
    """Without speculation; shared by all rules."""


@dataclass(frozen=True, kw_only=True)
class EqualityTest:
    """Pairs of requests that must give the same tokens."""

    kind: Kind
    rule: Rule
    num_speculative_tokens: int
    pairs: tuple[tuple[Draw, Draw], ...]
    """The first of a pair is the reference."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All tests of a run."""

    equalities: tuple[EqualityTest, ...]
    sampled: tuple[SampledTest, ...]

    def equality_draws(self) -> list[Draw]:
        """Each request of the equality tests, once."""
        return list(dict.fromkeys(draw for test in self.equalities for pair in test.pairs for draw in pair))

    def sampled_draws(self) -> list[Draw]:
        """Each request of the sampled tests, once."""
        return list(dict.fromkeys(draw for test in self.sampled for draw in (*test.plain, *test.speculated)))


def make_plan(settings: Settings) -> Plan:
    """The plan for the settings; their seed determines it."""
    generator = random.Random(settings.seed)
    kinds = [_greedy_tests(settings), _seed_tests(settings, generator)]
    if Rule.COUPLED in settings.rules:
        kinds.append(_coupled_tests(settings, generator))
    if settings.work_ahead is WorkAhead.ON:
        kinds.append(_ahead_tests(settings, generator))
    return Plan(
        equalities=tuple(test for tests in kinds for test in tests), sampled=tuple(_sampled_tests(settings, generator))
    )


def _greedy_tests(settings: Settings) -> Iterator[EqualityTest]:
    """Compares every rule and K with the target alone."""
    references = [
        Draw(
            prompt=prompt,
            sampling=SamplingOptions(temperature=0.0),
            rule=Rule.BLOCK,
            num_speculative_tokens=0,
            max_tokens=settings.greedy_tokens,
            wants_gaps=True,
        )
        for prompt in settings.prompts
    ]
    for rule in settings.rules:
        for length in sorted({min(length, settings.max_num_speculative_tokens) for length in GREEDY_LENGTHS}):
            changes = {
                "rule": rule,
                "num_speculative_tokens": length,
                "wants_gaps": False,
                "work_ahead": settings.work_ahead,
                "num_tree_tokens": settings.num_tree_tokens,
            }
            yield EqualityTest(
                kind=Kind.GREEDY,
                rule=rule,
                num_speculative_tokens=length,
                pairs=tuple((reference, replace(reference, **changes)) for reference in references),
            )


def _coupled_tests(settings: Settings, generator: random.Random) -> Iterator[EqualityTest]:
    references = _sequences(settings, generator, Rule.COUPLED, 0)
    for length in sorted({1, settings.num_speculative_tokens}):
        yield EqualityTest(
            kind=Kind.COUPLED,
            rule=Rule.COUPLED,
            num_speculative_tokens=length,
            pairs=tuple((reference, replace(reference, num_speculative_tokens=length)) for reference in references),
        )


def _seed_tests(settings: Settings, generator: random.Random) -> Iterator[EqualityTest]:
    for rule in settings.rules:
        first = _sequences(settings, generator, rule, settings.num_speculative_tokens)
        yield EqualityTest(
            kind=Kind.SEEDS,
            rule=rule,
            num_speculative_tokens=settings.num_speculative_tokens,
            pairs=tuple((draw, replace(draw, attempt=1)) for draw in first),
        )


def _ahead_tests(settings: Settings, generator: random.Random) -> Iterator[EqualityTest]:
    for rule in settings.rules:
        ahead = _sequences(settings, generator, rule, settings.num_speculative_tokens)
        yield EqualityTest(
            kind=Kind.AHEAD,
            rule=rule,
            num_speculative_tokens=settings.num_speculative_tokens,
            pairs=tuple((replace(draw, work_ahead=WorkAhead.OFF), draw) for draw in ahead),
        )


def _sequences(settings: Settings, generator: random.Random, rule: Rule, length: int) -> list[Draw]:
    """Sampled outputs, the same number for each prompt."""
    count = math.ceil(settings.sequences / len(settings.prompts))
    return [
        Draw(
            prompt=prompt,
            sampling=SamplingOptions(seed=seed),
            rule=rule,
            num_speculative_tokens=length,
            max_tokens=settings.sequence_tokens,
            work_ahead=settings.work_ahead,
            num_tree_tokens=settings.num_tree_tokens,
        )
        for prompt in settings.prompts
        for seed in _seeds(generator, count)
    ]


def _sampled_tests(settings: Settings, generator: random.Random) -> Iterator[SampledTest]:
    # The first token, the K tokens of a proposal, and the target's next token. The first is always the target's, so
    # differences begin with the second.
    max_tokens = settings.num_speculative_tokens + 2
    for prompt in settings.prompts:
        for name, sampling in settings.option_sets.items():

            def draws(
                rule: Rule, length: int, prompt: Prompt = prompt, sampling: SamplingOptions = sampling
            ) -> tuple[Draw, ...]:
                return tuple(
                    Draw(
                        prompt=prompt,
                        sampling=replace(sampling, seed=seed),
                        rule=rule,
                        num_speculative_tokens=length,
                        max_tokens=max_tokens,
                        work_ahead=settings.work_ahead,
                        num_tree_tokens=settings.num_tree_tokens,
                    )
                    for seed in _seeds(generator, settings.draws)
                )

            plain = draws(Rule.BLOCK, 0)
            for rule in settings.rules:
                yield SampledTest(
                    prompt=prompt,
                    options=name,
                    rule=rule,
                    lengths=tuple(range(2, max_tokens + 1)),
                    speculated=draws(rule, settings.num_speculative_tokens),
                    plain=plain,
                )


def _seeds(generator: random.Random, count: int) -> list[int]:
    return [generator.getrandbits(64) for _ in range(count)]
