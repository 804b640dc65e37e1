"""The interface of a runner whose target also drafts: by a head, or by a second pass."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from specpair.caches.cache import LayerShape
from specpair.caches.holding import Holding
from specpair.models.batch import Batch, PassOutput
from specpair.models.chain_miss import ChainMiss
from specpair.models.chain_row import ChainRow, DrawnChain
from specpair.models.output_tokens import OutputTokens
from specpair.models.runner import Runner
from specpair.models.tree_row import TreeRow
from specpair.options import Drafter, SequenceOptions
from specpair.speculation.trees.token_tree import TokenTree


class DraftRun(Protocol):
    """One draft of several sequences, step by step."""

    def logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """`[rows, vocabulary]` after the newest token of each of these sequences, by their indices among all; a
        sequence that was left out once is left out from then on."""
        ...


class HeadDraft(ABC):
    """A draft by a head that may give only some tokens: a `DraftRun`."""

    def __init__(self, outputs: OutputTokens | None):
        self._outputs = outputs
        """The tokens that the head gives; None if it gives all."""

    @abstractmethod
    def narrow_logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """As `logits`, of these tokens alone: `[rows, outputs]`."""

    def logits(self, token_ids: list[int], rows: list[int]) -> Tensor:
        """As `DraftRun.logits`."""
        logits = self.narrow_logits(token_ids, rows)
        return logits if self._outputs is None else self._outputs(logits)


class WholeDraft(DraftRun, Protocol):
    """One draft of several sequences whose proposals can also be drawn whole."""

    vocab_size: int
    """Ids of the target."""

    def draw(self, token_ids: list[int], chains: Sequence[ChainRow]) -> list[DrawnChain]:
        """Draws all tokens of a chain for each sequence, after these newest tokens. It is then the only call of the
        draft. Raises MemoryError."""
        ...


class Asked(NamedTuple):
    """A node whose continuations are asked for."""

    row: int
    """Its sequence, by the index among all."""
    node: int
    """Its number, or ROOT for the last committed token."""
    parent: int
    """The number of its parent, which was asked for on the level before; of no meaning for ROOT."""
    token: int


class TreeRun(Protocol):
    """One tree for each of several sequences; all of them grow by one level in each step."""

    outputs: OutputTokens | None
    """The tokens that the head gives; None if it gives all."""

    def logits(self, asked: list[Asked]) -> Tensor:
        """`[asked, outputs]` after these nodes, all of one level; those of one sequence stand together."""
        ...


@runtime_checkable
class DraftingRunner(Runner, Protocol):
    """A runner that keeps, in each pass, what drafting needs. Device thread only."""

    drafters: tuple[Drafter, ...]
    """What it can draft by, the default first."""
    most_tokens: int
    """Tokens of its longest proposal."""
    takes_steps: bool
    """Whether each token of a proposal takes a step of its own, which a proposal that ends early saves."""
    feeds_itself: bool
    """Whether drafting feeds tokens to the target. It then writes over what the verdict left unaccepted, and nothing is
    drafted after a tree, whose path is not in order yet."""

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> DraftRun:
        """A draft of at most `most` tokens for each sequence. Its last token is not fed yet; `places` say where the
        cache has those before: in order, unless the last of them are a path of a tree."""
        ...


@runtime_checkable
class TreeDraftingRunner(DraftingRunner, Protocol):
    """One whose head can also draft trees."""

    def grow(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> TreeRun:
        """A tree for each sequence, with at most `most` nodes to ask for; `places` as `begin` takes them."""
        ...


@runtime_checkable
class WholeDraftingRunner(DraftingRunner, Protocol):
    """One whose head draws whole proposals, where it does not refuse."""

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """Why proposals with these options are not drawn whole."""
        ...

    def begin(self, holdings: list[Holding], places: list[Sequence[int]], most: int) -> WholeDraft:
        """As of every runner that drafts."""
        ...


@runtime_checkable
class WholeTreeDraftingRunner(TreeDraftingRunner, Protocol):
    """One whose head grows whole trees, where it does not refuse."""

    def refusal(self, options: SequenceOptions) -> ChainMiss | None:
        """Why proposals with these options are not grown whole."""
        ...

    def grow_whole(
        self, holdings: list[Holding], places: list[Sequence[int]], rows: Sequence[TreeRow]
    ) -> list[TokenTree]:
        """A tree for each sequence; `places` as `begin` takes them. Raises MemoryError, CapacityExhaustedError."""
        ...


class TargetHead(Protocol):
    """What a target drafts by, without any state of sequences."""

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """What is cached for each token, as further layers after the target's."""
        ...

    def runner(self, inner: Runner, layer_count: int) -> DraftingRunner:
        """The target by `inner`, with this head. The cache has the head's layers after the target's `layer_count`."""
        ...


def extended(layers: dict[int, LayerShape], head: TargetHead) -> dict[int, LayerShape]:
    """What the cache holds for a target with a head."""
    return layers | dict(enumerate(head.shapes, len(layers)))


def run_tapped(inner: Runner, batch: Batch, taps: Sequence[int]) -> tuple[PassOutput, Tensor]:
    """One pass with its output as the batch asks for it, and the features `[taps, tokens, hidden]` of all its tokens
    after the layers `taps`."""
    layers = tuple(sorted({*batch.feature_layers, *taps}))
    output = inner.forward(replace(batch, feature_layers=layers, has_all_features=True))
    assert output.features is not None
    places = {layer: place for place, layer in enumerate(layers)}
    features = output.features[[places[layer] for layer in taps]]
    if not batch.feature_layers:
        return PassOutput(output.logits), features
    wanted = output.features[[places[layer] for layer in batch.feature_layers]]
    return PassOutput(output.logits, wanted if batch.has_all_features else wanted[:, batch.rows]), features
