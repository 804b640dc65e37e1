"""The held-out prompts, and what the target says to them."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from models.smollm2.generation import Numbered
from models.smollm2.prompts import HERE, Conversation, Segment

LONGEST = 200
"""Tokens of an answer."""
TOP = 256
"""Tokens kept for each position: more than in training, since the overlap is summed over them."""
ROLES = ("user", "assistant")


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One held-out prompt."""

    category: str
    turns: tuple[str, ...]
    """User and assistant in turns; the last is the user's."""
    measured: bool
    """Whether it is measured; the last of each category is for choosing between drafts."""


def read_held_out() -> list[HeldOut]:
    sections: list[tuple[str, list[str]]] = []
    for line in (HERE / "held_out_prompts.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            sections.append((line[3:], []))
        elif line and not line.startswith("#"):
            sections[-1][1].append(line.replace("\\n", "\n"))
    return [
        HeldOut(category=category, turns=tuple(line.split(" | ")), measured=index < len(lines) - 1)
        for category, lines in sections
        for index, line in enumerate(lines)
    ]


def held_out_conversations(tokenizer: PreTrainedTokenizerFast) -> list[Numbered]:
    """Each prompt at temperature 0 (numbers 0, 2, ...) and 1 (numbers 1, 3, ...)."""
    numbered: list[Numbered] = []
    for prompt in read_held_out():
        messages = [{"role": ROLES[i % 2], "content": turn} for i, turn in enumerate(prompt.turns)]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        given = Segment(given=tuple(tokenizer(str(text), add_special_tokens=False).input_ids))
        for temperature in (0.0, 1.0):
            answer = Segment(temperature=temperature, most=LONGEST, answer=True)
            conversation: Conversation = (given, answer)
            numbered.append((len(numbered), conversation))
    return numbered
