"""The parts of an answer to a conversation beside its text, as the server is told to find them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.http.output_reader import OutputReader
from coordinator.http.reasoning_reader import ReasoningReader
from coordinator.http.structure_parameters import ToolParameters
from coordinator.http.tool_calls import ToolCallReader
from coordinator.http.tools import may_call, tools_in_use
from coordinator.pair import Pair
from coordinator.reasoning_form import REASONING_FORMS
from coordinator.requests.reasoning import Reasoning
from coordinator.tool_call_form import TOOL_CALL_FORMS, ToolCallForm


@dataclass(frozen=True, kw_only=True)
class AnswerParts:
    """What is looked for in the answers to one request."""

    calling: ToolCallForm | None = None
    """The form of the calls; None without tools."""
    must_call: bool = False
    """Whether an answer is nothing but calls."""
    reasoning: Reasoning | None = None
    """What comes before the answers; None if all text is the answer."""
    mark_ids: Mapping[str, int] = field(default_factory=dict)
    """The added tokens that stand for marks of these forms, by mark. Other texts leave out those that are special."""
    tag_ids: frozenset[int] = frozenset()
    """Other added tokens that reasoning, and a text beside calls, may have."""

    @property
    def shown(self) -> Mapping[int, str]:
        """The special tokens that the outputs show, with their texts."""
        return {token_id: mark for mark, token_id in self.mark_ids.items()}

    def reader(self) -> OutputReader:
        """A reader of one output. Made with the first piece, when it is known where the outputs begin."""
        thinking = None if self.reasoning is None else ReasoningReader(self.reasoning.form, self.reasoning.beginning)
        calls = None if self.calling is None else ToolCallReader(self.calling, must_call=self.must_call)
        return OutputReader(thinking, calls)


def answer_parts(parameters: ToolParameters, pair: Pair) -> AnswerParts:
    """The parts of the answers with these tools. Raises InvalidFieldError."""
    config, tokenizer = pair.config, pair.target.tokenizer
    calling = TOOL_CALL_FORMS[config.tool_call_parser] if tools_in_use(parameters) else None
    thinking = None if config.reasoning_parser is None else REASONING_FORMS[config.reasoning_parser]
    marks = [] if calling is None else [calling.begin, calling.end]
    marks += [] if thinking is None else [thinking.begin, thinking.end]
    found = {} if tokenizer is None else {mark: tokenizer.added_id(mark) for mark in marks}
    mark_ids = {mark: token_id for mark, token_id in found.items() if token_id is not None}
    tag_ids = frozenset() if tokenizer is None else tokenizer.tag_ids
    tag_ids -= {*mark_ids.values(), *pair.target.info.eos_token_ids}
    reasoning, is_free = None, may_call(parameters)
    if thinking is not None:
        reasoning = Reasoning(form=thinking, mark_ids=mark_ids, tag_ids=tag_ids, may_lack_answer=is_free)
    must_call = calling is not None and not is_free
    return AnswerParts(calling=calling, must_call=must_call, reasoning=reasoning, mark_ids=mark_ids, tag_ids=tag_ids)
