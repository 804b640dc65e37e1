"""The configuration of a coordinator: its peers, limits and timeouts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from coordinator.draft_names import MAX_DRAFTS, DraftList, read_drafts
from coordinator.http_config import HttpConfig
from coordinator.reasoning_form import ReasoningParser
from coordinator.tool_call_form import ToolCallParser
from specpair.errors import InvalidFieldError
from specpair.flags import LISTENING, MODEL, SPECULATION, Flag, Range, listed
from specpair.options import Merge, Rule, WorkAhead, check_count, check_fields, check_range
from specpair.security.settings import PLAIN, ChannelSecurity
from specpair.server.config import ServerConfig

AUTO = "auto"
DNS_PREFIX = "dns:"
"""Before `name:port`: each address of the name is one instance."""
MAX_SPECULATIVE_TOKENS = 64
MAX_ADDRESSES = 64
MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Largest message of a client: more token ids than any model reads. Draft and target send larger ones."""
MAX_MODEL_NAME = 256
MAX_MODEL_NAMES = 16
WAIT = Range(0.001, 86400.0, "none")
NONE = "none"
"""Instead of addresses: there is no such service."""


def number_or_auto(text: str) -> int | None:
    """A number; None for `auto`. Raises ValueError."""
    if text == AUTO:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither {AUTO} nor a number") from None


def addresses(text: str) -> tuple[str, ...]:
    """The addresses of a list separated by commas."""
    return tuple(address.strip() for address in text.split(","))


@dataclass(frozen=True, kw_only=True)
class CoordinatorConfig:
    """One pair and how it is used. Times are in seconds.

    Raises InvalidFieldError for a value outside its limits.
    """

    target_addresses: Annotated[
        tuple[str, ...],
        Flag(
            "The target service, as host:port; several separated by commas, or dns:name:port for every address of the "
            "name.",
            name="target",
            kind=str,
            convert=addresses,
        ),
    ]
    draft_addresses: Annotated[
        tuple[str, ...],
        Flag(
            "The draft service, in the form of --target; `none` for the target alone. Several drafts have names, as "
            "in a=host:port,b=host:port; drafters such as ngram may be among them, and ngram or prompt-lookup alone "
            "need no service. See --merge.",
            name="draft",
            kind=str,
            convert=lambda text: () if text == NONE else addresses(text),
        ),
    ] = ()
    server: ServerConfig
    http: HttpConfig | None = None
    """The HTTP front end; None for none."""
    served_model_names: Annotated[
        tuple[str, ...],
        Flag(
            "Names of the model in the HTTP API, beside the target's own, which it has by default. Answers have the "
            "first, requests may have any.",
            LISTENING,
            "served_model_name",
            "NAME,...",
            kind=str,
            convert=listed,
        ),
    ] = ()
    chat_template: Annotated[
        str | None,
        Flag("Jinja file that replaces the chat template of the target's model.", MODEL, metavar="FILE"),
    ] = None
    reasoning_parser: Annotated[
        ReasoningParser | None,
        Flag(
            "The form in which the target writes its reasoning before the answer, which chat over HTTP then gives by "
            "itself: qwen3, or deepseek_r1, where the text may begin with reasoning that no tag opens. By default all "
            "text is the answer.",
            LISTENING,
        ),
    ] = None
    tool_call_parser: Annotated[
        ToolCallParser,
        Flag(
            "The form in which the target calls tools, in chat over HTTP: hermes for Hermes and Qwen, llama3_json, or "
            "mistral for its models before tokenizer 11.",
            LISTENING,
        ),
    ] = ToolCallParser.HERMES
    peer_security: ChannelSecurity = PLAIN
    """How the coordinator reaches draft and target."""
    num_speculative_tokens: Annotated[
        int | None,
        Flag(
            "Tokens proposed per round, unless a request sets its own. auto chooses for each round, from current "
            "acceptance and costs; 0 switches speculation off.",
            SPECULATION,
            metavar=f"{AUTO}|N",
            default_text=AUTO,
            parse=number_or_auto,
        ),
    ] = None
    max_num_speculative_tokens: Annotated[
        int, Range(0, MAX_SPECULATIVE_TOKENS), Flag("Most tokens that may be proposed per round.", SPECULATION)
    ] = 16
    rule: Annotated[
        Rule,
        Flag(
            "How proposals are judged, unless a request says so itself: token, block, or coupled, under which a seed "
            "repeats an output whatever is proposed, and more of what is worked out ahead is of use. All are exact.",
            SPECULATION,
        ),
    ] = Rule.BLOCK
    num_tree_tokens: Annotated[
        int,
        Range(0, MAX_SPECULATIVE_TOKENS),
        Flag(
            "Proposals are trees of so many tokens at most, on paths of at most --num-speculative-tokens, unless a "
            "request sets its own; 0 for chains.",
            SPECULATION,
        ),
    ] = 0
    merge: Annotated[
        Merge,
        Flag(
            "Whether the proposals of all drafts in --draft are merged into one tree of tokens, unless a request says "
            "so itself: tree, or none for those of the first alone.",
            SPECULATION,
        ),
    ] = Merge.NONE
    merge_wait: Annotated[
        float,
        WAIT,
        Flag("Seconds that a round waits for other drafts after the answer of the first one.", SPECULATION),
    ] = 0.1
    work_ahead: Annotated[
        WorkAhead,
        Flag(
            "Whether the draft prepares proposals for likely outcomes while the target verifies, unless a request says "
            "so itself: on, off, or auto for where it is measured to be faster. It changes no token.",
            SPECULATION,
        ),
    ] = WorkAhead.AUTO
    stream_interval: Annotated[
        float,
        Range(0.0, 1.0),
        Flag(
            "Seconds of text that a client gets at a time where nothing is proposed, or the target's head proposes: "
            "the target then gives several rounds in one answer, which spares work. 0 sends each round by itself. It "
            "changes no token.",
            SPECULATION,
            metavar="SECONDS",
        ),
    ] = 0.05
    unmasked_drafts: Annotated[
        bool,
        Flag(
            "The draft does not follow structured outputs, which lowers acceptance and changes nothing else.",
            SPECULATION,
        ),
    ] = False
    no_forced_text: Annotated[
        bool,
        Flag(
            "Text that a structured output forces is proposed and judged like any other, which costs rounds. "
            "Outputs are distributed the same; a seed gives another text under the rules token and block.",
            SPECULATION,
        ),
    ] = False
    max_requests: Annotated[int, Range(1, 65536, "none"), Flag("Most outputs generated at once.")] = 64
    """A request for n outputs counts as n."""
    max_requests_per_client: Annotated[
        int | None,
        Range(1, 65536),
        Flag(
            "Most outputs that one client may have at once, including waiting ones; no limit by default. All clients "
            "without a token count as one."
        ),
    ] = None
    max_queued_requests: Annotated[
        int,
        Range(0, 65536),
        Flag("Most requests that may wait when all places are taken; 0 refuses them at once."),
    ] = 64
    max_queue_wait: Annotated[float, WAIT, Flag("Seconds that a request may wait for its places.")] = 30.0
    draft_timeout: Annotated[float, WAIT, Flag("Seconds that a round waits for its proposal.")] = 5.0
    """After that the round runs without a proposal."""
    draft_cooldown: Annotated[float, WAIT] = 1.0
    """How long a draft that did not answer gets no calls."""
    target_timeout: Annotated[
        float,
        WAIT,
        Flag(
            "Seconds that an answer of a target may take, and that a request without a deadline waits for a lost "
            "target.",
        ),
    ] = 60.0
    startup_timeout: Annotated[float, WAIT] = 600.0
    """How long the start waits for the target, which may have to load weights."""
    draft_startup_timeout: Annotated[float, WAIT] = 120.0
    """How long the start waits for the draft; after that requests run without it until it comes."""

    def __post_init__(self) -> None:
        for name, given, fewest in (("target", self.target_addresses, 1), ("draft", self.draft_addresses, 0)):
            check_range(f"{name}_addresses length", len(given), fewest, MAX_ADDRESSES)
            for address in given if name == "target" else self._draft_addresses:
                check_address(name, address)
        check_model_names(self.served_model_names)
        self._check_names()
        check_fields(self)
        if self.num_speculative_tokens is not None:
            check_range("num_speculative_tokens", self.num_speculative_tokens, 0, self.max_num_speculative_tokens)

    @property
    def drafts(self) -> DraftList:
        """The drafts by their names. Raises InvalidFieldError."""
        return read_drafts(self.draft_addresses)

    @property
    def _draft_addresses(self) -> list[str]:
        return [address for own in self.drafts.addresses.values() for address in own]

    def check_merge(self) -> None:
        """Raises InvalidFieldError if proposals are to be merged and there is one draft."""
        if self.merge is Merge.TREE and len(self.drafts.names) < 2:
            raise InvalidFieldError("merge", f"is tree; it needs 2 to {MAX_DRAFTS} drafts in --draft")

    def _check_names(self) -> None:
        has_dns = any(address.startswith(DNS_PREFIX) for address in (*self.target_addresses, *self._draft_addresses))
        if has_dns and self.peer_security.tls is not None and self.peer_security.server_name is None:
            problem = f"is missing: hosts behind {DNS_PREFIX} are reached by addresses, which certificates do not name"
            raise InvalidFieldError("peer_tls_name", problem)


def check_address(field: str, address: str) -> None:
    """Raises InvalidFieldError unless the address is `host:port` or `dns:name:port`."""
    host, _, port = address.removeprefix(DNS_PREFIX).rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidFieldError(field, f"is {address!r}; it must be host:port, the port from 1 to 65535")


def check_model_names(names: Sequence[str]) -> None:
    """Raises InvalidFieldError for too many names, one that is too long or empty, or one that is given twice."""
    check_count("served_model_name", len(names), MAX_MODEL_NAMES)
    for place, name in enumerate(names):
        check_range("served_model_name length", len(name), 1, MAX_MODEL_NAME)
        if name in names[:place]:
            raise InvalidFieldError("served_model_name", f"has {name!r} twice")
