"""The forms in which models write down their reasoning before the answer."""

from dataclasses import dataclass
from enum import StrEnum


class ReasoningParser(StrEnum):
    """Names of the forms, which are vLLM's."""

    QWEN3 = "qwen3"
    DEEPSEEK_R1 = "deepseek_r1"


@dataclass(frozen=True, kw_only=True)
class ReasoningForm:
    """Reasoning stands between two tags, the answer after them."""

    begin: str = "<think>"
    end: str = "</think>"
    begins_inside: bool = False
    """Whether a new text is reasoning even if neither it nor its prompt opens any. It may open it all the same."""


REASONING_FORMS = {
    ReasoningParser.QWEN3: ReasoningForm(),
    ReasoningParser.DEEPSEEK_R1: ReasoningForm(begins_inside=True),
}
