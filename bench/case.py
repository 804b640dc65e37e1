"""The cases of a comparison: each is one way to generate the same text."""

from dataclasses import dataclass, replace
from enum import StrEnum

from specpair.options import Drafter, Rule, WorkAhead


class Peer(StrEnum):
    """What generates the text."""

    GENERATE = "generate"
    """`transformers` generate, with its default cache."""
    GENERATE_STATIC = "generate static"
    """The same with its static cache, whose shapes let it compile the model on a GPU."""
    ASSISTED = "assisted"
    """`transformers` assisted generation: draft and target in one process."""
    SPECPAIR = "specpair"
    """The three services."""
    LLAMA = "llama.cpp"
    """llama-server: target and, if it speculates, draft in one process."""
    VLLM = "vLLM"
    """Its server: the same in one process for the models, beside one for HTTP and one that schedules."""


class Weights(StrEnum):
    """llama.cpp: how the matrices are stored."""

    BF16 = "bf16"
    Q8_0 = "Q8_0"
    """8 bits, with a 16-bit scale for each 32."""
    FILE = "GGUF"
    """As they are in a GGUF file that somebody else wrote."""


OWN_LENGTH = {Peer.ASSISTED: "default", Peer.SPECPAIR: "adaptive", Peer.LLAMA: "while sure"}
"""The names of peers that choose the number of tokens themselves."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to generate, with everything that is fixed about it."""

    peer: Peer
    temperature: float
    batch_size: int = 1
    """Prompts generated at the same time."""
    num_speculative_tokens: int | None = None
    """Tokens per proposal; None leaves them to the peer."""
    num_tree_tokens: int | None = None
    """specpair: tokens of a tree at most, 0 for chains; None leaves it to the server."""
    drafts: tuple[str, ...] = ()
    """specpair: the drafts by name, whose proposals are merged; none leaves them to the server."""
    drafter: Drafter | None = None
    """specpair: the drafter; None is the draft service's default."""
    rule: Rule = Rule.BLOCK
    """specpair: how proposals are judged."""
    work_ahead: WorkAhead | None = None
    """specpair: whether the draft works ahead; None leaves it to the server."""
    weights: Weights | None = None
    """llama.cpp: what it computes with."""

    @property
    def name(self) -> str:
        """The name in tables."""
        if self.peer in (Peer.GENERATE, Peer.GENERATE_STATIC):
            return self.peer.value
        k = OWN_LENGTH[self.peer] if self.num_speculative_tokens is None else f"K={self.num_speculative_tokens}"
        details = [self.weights and self.weights.value, k, self.drafter and self.drafter.value]
        return " ".join(filter(None, [self.peer.value, *details]))

    @property
    def block(self) -> tuple[float, int]:
        """Temperature and batch size: cases are compared within a block, and take turns within it."""
        return self.temperature, self.batch_size

    def plain(self) -> "Case":
        """specpair without speculation, in the same block."""
        return Case(
            peer=Peer.SPECPAIR, temperature=self.temperature, batch_size=self.batch_size, num_speculative_tokens=0
        )

    def generate(self) -> "Case":
        """`transformers` generate, in the same block."""
        return Case(peer=Peer.GENERATE, temperature=self.temperature, batch_size=self.batch_size)

    def batched(self, size: int) -> "Case":
        """The same case with `size` prompts at the same time."""
        return replace(self, batch_size=size)
