"""Training prompts without a network: made from lists, or written by the target itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from models.smollm2.target import END, SYSTEM

HERE = Path(__file__).parent
OWN_SHARE = 0.65
"""Share of conversations whose user turn the target writes itself."""
BARE_SHARE = 0.5
"""Share of those that begin with nothing but the header of a user turn; the others begin with an opening."""
SECOND_TURN_SHARE = 0.2
OTHER_SYSTEM_SHARE = 0.15
OTHER_SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly chatbot.",
    "Answer briefly.",
    "You are an expert programmer.",
    "You are a patient teacher.",
)
TEMPERATURES = (0.0, 1.0, 0.7)
TEMPERATURE_SHARES = (0.25, 0.35, 0.4)
"""Greedy answers repeat themselves and each other: a draft learns them by heart. So most answers are sampled."""
TURN_TEMPERATURE = 0.8
"""Of user turns; at 1 most of them make no sense."""
LONGEST_ANSWER, LONGEST_SECOND, LONGEST_TURN = 200, 90, 60
"""Tokens: of an only answer, of each of two answers, of a user turn that the target writes."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a conversation that is given, or sampled from the target."""

    given: tuple[int, ...] = ()
    """Token ids; empty for a sampled part."""
    temperature: float = 0.0
    most: int = 0
    """Longest sampled part in tokens, its `<|im_end|>` included."""
    answer: bool = False
    """Whether a sampled part is the assistant's."""


Conversation = tuple[Segment, ...]


def read_lines(name: str) -> list[str]:
    """The lines of a text file beside this module, without comments and empty lines."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines if line and not line.startswith("#")]


def read_topics() -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    section: list[str] = []
    for line in (HERE / "topics.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            section = topics.setdefault(line[2:], [])
        elif line:
            section.append(line.replace("\\n", "\n"))
    return topics


class Prompts:
    """Conversation number i is always the same, whatever was made before."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, shares: Sequence[float] = TEMPERATURE_SHARES) -> None:
        self.shares = shares
        self.templates, self.openings = read_lines("templates.txt"), read_lines("openings.txt")
        self.followups, self.topics = read_lines("followups.txt"), read_topics()
        self.encode: Callable[[str], tuple[int, ...]] = lambda text: tuple(
            tokenizer(text, add_special_tokens=False).input_ids
        )
        self.header = self.encode("<|im_start|>user\n")
        self.answer_header = self.encode("\n<|im_start|>assistant\n")

    def conversation(self, number: int) -> Conversation:
        generator = np.random.default_rng((14, number))
        temperature = float(generator.choice(TEMPERATURES, p=self.shares))
        two = generator.random() < SECOND_TURN_SHARE
        most = LONGEST_SECOND if two else LONGEST_ANSWER
        answer = Segment(temperature=temperature, most=most, answer=True)
        first = [*self.opening(generator), Segment(given=self.answer_header), answer]
        if not two:
            return tuple(first)
        text = self.followups[generator.integers(len(self.followups))]
        turn = self.encode(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
        return (*first, Segment(given=turn), answer)

    def opening(self, generator: np.random.Generator) -> list[Segment]:
        """The system message and the first user turn."""
        start = self.system(generator)
        if generator.random() >= OWN_SHARE:
            return [Segment(given=start + self.encode(self.fill(generator)) + (END,))]
        if generator.random() >= BARE_SHARE:
            start = start + self.encode(self.openings[generator.integers(len(self.openings))])
        return [Segment(given=start), Segment(temperature=TURN_TEMPERATURE, most=LONGEST_TURN)]

    def system(self, generator: np.random.Generator) -> tuple[int, ...]:
        text = SYSTEM
        if generator.random() < OTHER_SYSTEM_SHARE:
            text = OTHER_SYSTEMS[generator.integers(len(OTHER_SYSTEMS))]
        return self.encode(f"<|im_start|>system\n{text}<|im_end|>\n<|im_start|>user\n")

    def fill(self, generator: np.random.Generator) -> str:
        """A template with its places filled; each place gets a topic of its own."""
        text = self.templates[generator.integers(len(self.templates))]
        for name, lines in self.topics.items():
            while f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", lines[generator.integers(len(lines))], 1)
        small, large = generator.integers(2, 13), generator.integers(15, 400)
        return text.replace("{n}", str(small)).replace("{m}", str(large))
