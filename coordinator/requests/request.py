"""The checked request. All checks of a request are here."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator.config import CoordinatorConfig
from coordinator.requests.beams import check_beams, read_beams
from coordinator.requests.encoder import EncoderReader
from coordinator.requests.named_drafts import read_draft_names
from coordinator.requests.prompt import PromptReader
from coordinator.requests.reasoning import Reasoning
from coordinator.requests.sampling import read_sampling
from coordinator.requests.structure_checks import StructureChecks
from coordinator.requests.structures import read_structured_output
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.model_info import NO_DEFAULTS, ModelInfo, SamplingDefaults
from specpair.options import (
    FROM_TEXT,
    MAX_LOGPROBS,
    MAX_SEED,
    MAX_UINT32,
    ON_THE_TARGET,
    Drafter,
    Encoding,
    Rule,
    SamplingOptions,
    SequenceOptions,
    StructuredOutput,
    WorkAhead,
    check_count,
    check_lenience,
    check_range,
)
from specpair.rpc.messages import (
    drafter_from_proto,
    encoding_from_proto,
    rule_from_proto,
    work_ahead_from_proto,
)
from specpair.speculation.beams.beam_options import BeamOptions
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2

MAX_STOP_STRINGS = 16
MAX_STOP_STRING_LENGTH = 256
MAX_OUTPUTS = 32
USUAL_LENGTH = 4
"""Tokens of a chain where their number is decided anew for each round."""


class OutputCount(NamedTuple):
    """How many outputs a request asks for."""

    n: int
    """Outputs to return."""
    best_of: int
    """Outputs to generate."""


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """What to generate, checked: every number is within its limits."""

    prompt_ids: tuple[int, ...]
    sampling: SamplingOptions
    """Its stop tokens are the request's and, unless ignore_eos is set, the model's own."""
    encoder_ids: tuple[int, ...] = ()
    """What the encoder reads; empty for a target without one."""
    resumed_ids: tuple[int, ...] = ()
    """Tokens that the client received from an interrupted call; the output continues after them."""
    max_tokens: int
    """At least 1, or 0 if only the prompt is needed; prompt and output fit the model."""
    stop_strings: tuple[str, ...] = ()
    shown: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that are part of the text, with what they are there."""
    num_speculative_tokens: int | None
    """Tokens proposed per round; None for adaptive K."""
    num_tree_tokens: int = 0
    """Tokens of a tree at most; 0 for chains."""
    rule: Rule = Rule.BLOCK
    encoding: Encoding = Encoding.SPARSE
    drafter: Drafter | None = None
    """The drafter; None for the draft's default."""
    drafts: tuple[str, ...] = ()
    """The drafts that propose, by name; several are merged. Empty for the first draft alone."""
    work_ahead: WorkAhead = WorkAhead.AUTO
    lenience: float = 1.0
    structured_output: StructuredOutput | None = None
    """What each output has to look like."""
    takes_forced_text: bool = False
    """Whether text that the structured output forces comes with the verdict, without a proposal."""
    include_rejected: bool = False
    include_rounds: bool = False
    n: int = 1
    best_of: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    prompt_text: str = ""
    """With echo, the prompt's text, with which each output begins; else empty."""
    beams: BeamOptions | None = None
    """The beam search; None if tokens are drawn."""

    @property
    def wants_prompt(self) -> bool:
        """Whether the answer includes the prompt's tokens."""
        return self.echo or self.prompt_logprobs is not None

    @property
    def merges(self) -> bool:
        """Whether the proposals of several drafts are merged into one tree."""
        return len(self.drafts) > 1

    @property
    def most_tree_tokens(self) -> int:
        """Tokens of the trees to expect; 0 for chains."""
        return self.tree_tokens(self.num_speculative_tokens or USUAL_LENGTH)

    def tree_tokens(self, length: int) -> int:
        """Tokens of a tree at most whose longest path has `length` tokens; 0 for a chain. Merged chains have room."""
        return self.num_tree_tokens or (length * len(self.drafts) if self.merges else 0)

    def cached_prompt_tokens(self, cached_token_count: int) -> int:
        """How many tokens of the prompt the target did not read for this request, by how many it had in its cache
        when it opened the sequence: none if it had just read them all, for their logprobs."""
        return min(cached_token_count, len(self.prompt_ids)) if self.prompt_logprobs is None else 0

    def output(self, index: int) -> "GenerationRequest":
        """The request for one of its outputs, with the seed of that output."""
        seed = (self.sampling.seed + index) % (MAX_SEED + 1)
        return replace(self, sampling=self.sampling.with_seed(seed))

    @property
    def repeats(self) -> bool:
        """Whether the same seed gives the same tokens, however many are proposed in each round."""
        is_fixed = self.num_speculative_tokens is not None
        return is_fixed or self.rule is Rule.COUPLED or self.sampling.is_greedy

    def with_private_seed(self) -> "GenerationRequest":
        """The request with a seed that nobody knows."""
        return replace(self, sampling=self.sampling.with_seed(secrets.randbits(64)))

    def sequence_options(self, vocab_size: int) -> SequenceOptions:
        """The options for draft and target. Choosing the best outputs needs logprobs, even if none were requested."""
        logprobs = 0 if self.logprobs is None and self.best_of > self.n else self.logprobs
        return SequenceOptions(
            sampling=self.sampling,
            rule=self.rule,
            encoding=self.encoding,
            vocab_size=vocab_size,
            lenience=self.lenience,
            logprobs=logprobs,
            drafter=self.drafter,
            structured_output=self.structured_output,
            encoder_ids=self.encoder_ids,
        )


@dataclass(frozen=True, kw_only=True)
class RequestReader:
    """Turns messages into requests that the pair can serve."""

    config: CoordinatorConfig
    target: ModelInfo
    tokenizer: Tokenizer | None
    draft: ModelInfo | None = None
    """None while no draft is available: its drafters are then unknown."""
    structures: StructureChecks | None = None
    """Finds whether a structured output can be used; None leaves that to the target."""
    drafts: Mapping[str, ModelInfo | None] = field(default_factory=dict)
    """All drafts, by name."""
    defaults: SamplingDefaults = NO_DEFAULTS
    """What the model says of sampling, for requests that do not."""

    def output_count(self, message: pb.GenerateTokensRequest) -> OutputCount:
        """Read on its own, because admission comes before any other work. Raises InvalidFieldError."""
        own_limit = self.config.max_requests_per_client or MAX_OUTPUTS
        limit = min(MAX_OUTPUTS, own_limit, self.config.max_requests, self.target.max_num_seqs)
        n = message.n if message.HasField("n") else 1
        check_range("n", n, 1, limit)
        best_of = message.best_of if message.HasField("best_of") else n
        if (num_beams := check_beams(message)) is not None:
            check_range("num_beams", num_beams, n, limit)  # a beam is as much work as an output
            return OutputCount(n, num_beams)
        check_range("best_of", best_of, n, limit)
        return OutputCount(n, best_of)

    async def read(
        self,
        message: pb.GenerateTokensRequest,
        *,
        reasoning: Reasoning | None = None,
        shown: Mapping[int, str] | None = None,
    ) -> GenerationRequest:
        """The checked request. `reasoning` receives where its outputs begin; `shown` are special tokens with texts that
        the outputs show.

        Raises InvalidFieldError, PromptTooLongError, or NotSupportedError (text without a tokenizer).
        """
        n, best_of = self.output_count(message)
        sampling = read_sampling(message, self.target, self.defaults)
        num_speculative_tokens = self._read_speculation(message)
        lenience = message.lenience if message.HasField("lenience") else 1.0
        rule, encoding = self._read_rule(message, lenience), encoding_from_proto(message.encoding)
        check_lenience(lenience, rule)
        drafts = read_draft_names(message, self.config, self.target, self.drafts, lenience)
        drafter = self._read_drafter(message, drafts)
        stop_strings = self._read_stop_strings(message.stop_strings)
        logprobs, prompt_logprobs = _read_logprobs(message, "logprobs"), _read_logprobs(message, "prompt_logprobs")
        prompts = PromptReader(target=self.target, tokenizer=self.tokenizer, reasoning=reasoning)
        encoder_ids = await EncoderReader(target=self.target, tokenizer=self.tokenizer).read(message)
        prompt_ids = await prompts.read(message)
        max_tokens = self._read_max_tokens(message, len(prompt_ids), sampling.min_tokens)
        resumed_ids = _read_resumed(message, prompts, max_tokens, best_of)
        echo = message.echo and not resumed_ids
        structure = await read_structured_output(message, sampling, self.target, self.structures, reasoning)
        has_rows = logprobs is not None or best_of > n  # a logprob is due for each token, which takes a row of its own
        return GenerationRequest(
            prompt_ids=prompt_ids,
            encoder_ids=encoder_ids,
            sampling=sampling,
            resumed_ids=resumed_ids,
            max_tokens=max_tokens,
            stop_strings=stop_strings,
            shown=shown or {},
            num_speculative_tokens=num_speculative_tokens,
            num_tree_tokens=self._read_tree(message),
            rule=rule,
            encoding=encoding,
            drafter=drafter,
            drafts=drafts,
            work_ahead=work_ahead_from_proto(message.work_ahead) or self.config.work_ahead,
            lenience=lenience,
            structured_output=structure,
            takes_forced_text=structure is not None and not has_rows and not self.config.no_forced_text,
            include_rejected=message.include_rejected,
            include_rounds=message.include_rounds,
            n=n,
            best_of=best_of,
            logprobs=logprobs,
            prompt_logprobs=None if resumed_ids else prompt_logprobs,
            echo=echo,
            prompt_text=await prompts.text(message, prompt_ids) if echo else "",
            beams=read_beams(message, sampling, max_tokens, self.target),
        )

    def _read_max_tokens(self, message: pb.GenerateTokensRequest, prompt_length: int, min_tokens: int) -> int:
        room = self.target.max_model_len - prompt_length
        max_tokens = room
        if message.HasField("max_tokens"):
            wants_prompt_alone = message.echo or message.HasField("prompt_logprobs")
            check_range("max_tokens", message.max_tokens, 0 if wants_prompt_alone else 1, MAX_UINT32)
            max_tokens = min(message.max_tokens, room)
        if min_tokens > max_tokens:
            problem = f"is {min_tokens}; at most {max_tokens} tokens fit max_tokens and the model's length"
            raise InvalidFieldError("sampling.min_tokens", problem, limit=max_tokens)
        return max_tokens

    def _read_speculation(self, message: pb.GenerateTokensRequest) -> int | None:
        if not message.HasField("num_speculative_tokens"):
            return self.config.num_speculative_tokens
        check_range("num_speculative_tokens", message.num_speculative_tokens, 0, self.config.max_num_speculative_tokens)
        return message.num_speculative_tokens

    def _read_rule(self, message: pb.GenerateTokensRequest, lenience: float) -> Rule:
        """The rule; if none is given, the one that the lenience requires, or the server's."""
        if message.rule == sampling_pb2.ACCEPTANCE_RULE_UNSPECIFIED:
            return Rule.TOKEN if lenience < 1.0 else self.config.rule
        return rule_from_proto(message.rule)

    def _read_tree(self, message: pb.GenerateTokensRequest) -> int:
        is_own = drafter_from_proto(message.drafter) in ON_THE_TARGET
        if not message.HasField("num_tree_tokens"):
            if is_own:
                return 0
            return self.config.num_tree_tokens if self.target.runs_trees else 0
        check_range("num_tree_tokens", message.num_tree_tokens, 0, self.config.max_num_speculative_tokens)
        if message.num_tree_tokens and is_own:
            raise NotSupportedError("num_tree_tokens: the target's --head-tree-tokens decides on its head's trees")
        if message.num_tree_tokens and not self.target.runs_trees:
            raise NotSupportedError("num_tree_tokens: the target does not verify trees of tokens")
        return message.num_tree_tokens

    def _read_drafter(self, message: pb.GenerateTokensRequest, drafts: tuple[str, ...]) -> Drafter | None:
        drafter = drafter_from_proto(message.drafter)
        if drafter is not None and (len(drafts) > 1 or any(name in tuple(Drafter) for name in drafts)):
            raise InvalidFieldError("drafter", f"is {drafter}; the drafters are those that `drafts` names")
        if drafter in ON_THE_TARGET:
            if drafter not in self.target.drafters:
                raise InvalidFieldError("drafter", f"is {drafter}; the target has no such head")
            return drafter
        if drafter in FROM_TEXT:
            return drafter
        if drafter not in (None, Drafter.MODEL) and self.draft is None and not self.drafts:
            raise InvalidFieldError("drafter", f"is {drafter}; there is no draft service that might have it")
        draft = self.drafts.get(drafts[0]) if drafts else self.draft
        available = () if draft is None else draft.drafters
        if drafter is not None and available and drafter not in available:
            raise InvalidFieldError("drafter", f"is {drafter}; the draft has {', '.join(available)}")
        return drafter

    def _read_stop_strings(self, stop_strings: Sequence[str]) -> tuple[str, ...]:
        check_count("stop_strings", len(stop_strings), MAX_STOP_STRINGS)
        if stop_strings and self.tokenizer is None:
            raise NotSupportedError("stop_strings: the target has no tokenizer; send stop_token_ids")
        for index, stop in enumerate(stop_strings):
            check_range(f"stop_strings[{index}] length", len(stop), 1, MAX_STOP_STRING_LENGTH)
        return tuple(stop_strings)


def _read_logprobs(message: pb.GenerateTokensRequest, field: str) -> int | None:
    if not message.HasField(field):
        return None
    count = getattr(message, field)
    check_range(field, count, 0, MAX_LOGPROBS)
    return count


def _read_resumed(
    message: pb.GenerateTokensRequest, prompts: PromptReader, max_tokens: int, best_of: int
) -> tuple[int, ...]:
    """Tokens that the client already has. The seed must be that of the interrupted call: no draw may be made twice."""
    check_count("resumed_token_ids", len(message.resumed_token_ids), max_tokens)
    if message.resumed_token_ids:
        check_range("best_of", best_of, 1, 1)
        if not message.sampling.HasField("seed"):
            raise InvalidFieldError("sampling.seed", "must be set to that of the call that is resumed")
    return prompts.checked("resumed_token_ids", message.resumed_token_ids)
