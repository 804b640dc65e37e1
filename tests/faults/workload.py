"""The clients' requests, by seed. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.structured_output_pb2 import StructuredOutput

MAX_OUTPUTS = 2
SHARED_TOKENS = 24
MOST_OWN_TOKENS = 32
MOST_PROMPT_TOKENS = SHARED_TOKENS + MOST_OWN_TOKENS

SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 4,
    "maxItems": 6,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]{3,8}$"},
            "colour": {"enum": ["red", "green", "blue"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "colour", "count"],
        "additionalProperties": False,
    },
    "x-guidance": {"whitespace_flexible": False},
}
"""Of structured outputs: a list, much of which is forced."""

Rule = Literal["token", "block", "coupled"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that the output depends on: greedy and coupled outputs depend on nothing else."""

    name: str
    prompt_ids: Sequence[int]
    temperature: float
    rule: Rule
    seed: int
    max_tokens: int
    drafter: str | None = None
    """What proposes; None for the default."""
    options: dict[str, float] = field(default_factory=dict)
    """More fields of SamplingOptions."""
    schema: dict[str, Any] | None = None
    """A JSON Schema that the output has to fit; it then ends by itself."""

    def output(self, index: int) -> "Case":
        """The case whose only output is this one."""
        return replace(self, seed=self.seed + index)

    def request(self, variation: "Variation") -> pb.GenerateTokensRequest:
        """What a client sends."""
        options = {"temperature": self.temperature, "seed": self.seed, **self.options}
        return pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=self.prompt_ids),
            sampling=sampling_pb2.SamplingOptions(**options),  # pyright: ignore[reportArgumentType]
            max_tokens=self.max_tokens,
            ignore_eos=self.schema is None,
            structured_output=None if self.schema is None else StructuredOutput(json_schema=json.dumps(self.schema)),
            n=variation.n,
            rule=f"ACCEPTANCE_RULE_{self.rule.upper()}",
            num_speculative_tokens=variation.num_speculative_tokens,
            drafter=None if self.drafter is None else f"DRAFTER_{self.drafter.upper().replace('-', '_')}",  # pyright: ignore[reportArgumentType]
        )


@dataclass(frozen=True, kw_only=True)
class Variation:
    """Options that must not change the output."""

    num_speculative_tokens: int | None
    n: int = 1
    cancel_after: int | None = None
    """The client cancels after this many tokens; None reads to the end."""
    deadline_seconds: float
    """What the client gives the request."""
    has_little_time: bool = False
    """Whether the deadline is so short that it may pass."""


def make_cases(seed: int, count: int, vocab_size: int, max_tokens: int, least_tokens: int | None = None) -> list[Case]:
    """Half of them greedy, half coupled; some share a prefix, some have penalties.

    Outputs have `least_tokens`, by default half of `max_tokens`, to `max_tokens` tokens.
    """
    random = Random(f"{seed} cases")
    beginning = _tokens(random, SHARED_TOKENS, vocab_size)
    lengths = (max_tokens // 2 if least_tokens is None else least_tokens, max_tokens)
    return [_make_case(random, index, beginning, vocab_size, lengths) for index in range(count)]


def vary(random: Random, case: Case, patience: float, cancels: float = 0.1) -> Variation:
    """One way to ask for a case.

    `patience` is the deadline in seconds of a client with time; the share `cancels` of all clients leaves early.
    """
    dice = random.random()
    has_little_time = dice >= 0.97
    return Variation(
        num_speculative_tokens=random.choice([0, 3, 3, None]),
        n=random.choice([1, 1, 1, MAX_OUTPUTS]),
        cancel_after=random.randrange(case.max_tokens) if dice < cancels else None,
        deadline_seconds=random.uniform(0.1, 2.0) if has_little_time else patience,
        has_little_time=has_little_time,
    )


def _make_case(random: Random, index: int, beginning: list[int], vocab_size: int, lengths: tuple[int, int]) -> Case:
    is_greedy = index % 2 == 0
    own = _tokens(random, random.randint(2, MOST_OWN_TOKENS), vocab_size)
    return Case(
        name=f"{'greedy' if is_greedy else 'coupled'}-{index}",
        prompt_ids=beginning + own if index % 3 == 0 else own,
        temperature=0.0 if is_greedy else random.choice([0.7, 1.0]),
        rule=random.choice(["token", "block", "coupled"]) if is_greedy else "coupled",
        seed=random.randrange(2**53),
        max_tokens=random.randint(*lengths),
        options=random.choice([{}, {"frequency_penalty": 0.5}, {"top_p": 0.9}]),
    )


def _tokens(random: Random, count: int, vocab_size: int) -> list[int]:
    return [random.randrange(vocab_size) for _ in range(count)]
