"""Trees of the draft model, grown level by level, with one forward pass for each.

For greedy targets and the coupled rule, which are exact for any tree, the likeliest continuations
(`specpair.speculation.trees.ranked_growth`). For the token and the block rule, draws without replacement from rows that
are sent (`planned_growth`).
"""

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from torch import Tensor

from draft_service.proposal import Drafted
from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.options import Drafter, Encoding, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.adjustments import adjust
from specpair.speculation.count_row import CountRow
from specpair.speculation.masking import masked_if_possible
from specpair.speculation.outlook import WIDTH, Outlook
from specpair.speculation.sampling import finite_rows
from specpair.speculation.sparse_rows import sparsify
from specpair.speculation.trees.candidates import is_ranked, looked_at, shares
from specpair.speculation.trees.chances import TYPICAL, draw_chances, drawn_chances
from specpair.speculation.trees.drawing import draw_siblings, first_offset
from specpair.speculation.trees.drawn_tree import Draw, Row
from specpair.speculation.trees.planned_growth import PlannedGrowth
from specpair.speculation.trees.ranked_growth import Candidate, GrowthLimits, RankedGrowth
from specpair.speculation.trees.token_tree import ROOT, TokenTree

Item = TypeVar("Item")


class Growth(Protocol):
    """A tree that grows by one level at a time."""

    frontier: list[int]

    @property
    def depth(self) -> int: ...
    def token(self, node: int) -> int: ...
    def parent(self, node: int) -> int: ...


@dataclass(eq=False, kw_only=True)
class TreeWork(Work):
    """The engine's work for one tree. Each pass feeds the nodes whose continuations are asked for, and those on the
    paths to them: never more than the tree may have."""

    held: HeldSequence[Drafted]
    step: int
    growth: Growth
    fed: list[int] = field(default_factory=list)
    """The nodes of the growth that are fed, in order: the frontier and the paths to it."""
    counts: list[CountRow] = field(default_factory=list)
    """The rows that were drawn from."""

    @property
    def options(self) -> SequenceOptions:
        return self.held.options

    @property
    def asked_rows(self) -> list[int]:
        """The rows, among its own, of the growth's frontier."""
        return [0 if node == ROOT else 1 + self.fed.index(node) for node in self.growth.frontier]

    @property
    def position(self) -> int:
        """Position of the tokens that follow the frontier, whose nodes are all equally deep."""
        return len(self.sequence.tokens) - len(self.fed) + self.growth.depth

    def rank(self, outlooks: list[Outlook]) -> None:
        """Adds the best tokens after each node of the frontier, and feeds the next one."""
        assert isinstance(self.growth, RankedGrowth)
        self.growth.extend([[Candidate(*pair) for pair in zip(*outlook, strict=True)] for outlook in outlooks])
        self._feed()

    def draw(self, rows: list[CountRow]) -> None:
        """Draws tokens from the row at each node of the frontier, and feeds the next one."""
        growth = self.growth
        assert isinstance(growth, PlannedGrowth)
        sent = [Row.of_counts(row, replaces=False) for row in rows]
        wanted = growth.counts([draw_chances(row, WIDTH) for row in sent])
        seed, offset = self.options.sampling.seed, first_offset(self.options.draft_index) + growth.draw_count
        drawn: list[list[int]] = []
        for row, count in zip(rows, wanted, strict=True):
            drawn.append(draw_siblings(row, count, seed, self.step, offset, replaces=False))
            offset += len(drawn[-1])
        self.counts += [row for row, own in zip(rows, drawn, strict=True) if own]
        growth.extend(sent, drawn, [drawn_chances(row, own) for row, own in zip(sent, drawn, strict=True)])
        self._feed()

    def end_early(self) -> None:
        """A row of the frontier cannot be drawn from. The tree is sent as it is: to drop tokens for what came after
        them would bias the output (docs/exactness.md, rule 8). Without any, the work fails."""
        if not self.growth.depth:
            self.fail(NotFiniteError())
            return
        tokens = self.sequence.tokens
        del tokens[len(tokens) - len(self.fed) :]
        self.done = True

    def _feed(self) -> None:
        tokens, growth = self.sequence.tokens, self.growth
        self.done = not growth.frontier
        del tokens[len(tokens) - len(self.fed) :]
        if not self.done:
            self.fed = self._needed()
            places = {ROOT: ROOT} | {node: place for place, node in enumerate(self.fed)}
            tokens += [growth.token(node) for node in self.fed]
            self.parents = tuple(places[growth.parent(node)] for node in self.fed)
            self.row_count = 1 + len(self.fed)

    def _needed(self) -> list[int]:
        needed: set[int] = set()
        for node in self.growth.frontier:
            while node != ROOT and node not in needed:
                needed.add(node)
                node = self.growth.parent(node)
        return sorted(needed)

    def drafted(self) -> Drafted:
        """The proposal, once the work is done."""
        tree, draws = grown(self.growth)
        return Drafted(
            drafter=Drafter.MODEL,
            tokens=list(tree.tokens),
            tree=tree,
            draws=draws,
            counts=self.counts,
            dense=[],
            queue_time=self.queue_time,
            compute_time=self.compute_time,
            batch_size=self.largest_batch.sequence_count if self.largest_batch else 0,
            rollback_time=self.rollback_time,
        )


def grown(growth: Growth) -> tuple[TokenTree, tuple[Draw, ...]]:
    """The tree, and the draws that gave it, if it was drawn."""
    if isinstance(growth, PlannedGrowth):
        drawn = growth.tree()
        return drawn.tree, drawn.draws
    assert isinstance(growth, RankedGrowth)
    return growth.tree(), ()


def can_grow_trees(options: SequenceOptions) -> bool:
    """Whether sequences with these options can have trees: rows are sent as counts, and no rule is bent."""
    return options.lenience == 1.0 and (is_ranked(options) or options.encoding is Encoding.SPARSE)


def new_growth(options: SequenceOptions, limits: GrowthLimits) -> Growth:
    return RankedGrowth(limits) if is_ranked(options) else PlannedGrowth(limits, TYPICAL)


def advance_trees(works: list[TreeWork], logits: Tensor) -> None:
    """Grows every tree by one level, from logits `[sum of row counts, vocabulary]`."""
    picked, owners = asked_rows(works)
    for work, own in zip(works, logits.split([work.row_count for work in works]), strict=True):
        if work.options.vocab_size is not None:
            own[:, work.options.vocab_size :] = float("-inf")
    rows = adjusted_rows(works, logits)[picked]
    finite = finite_rows(logits[picked]).tolist()
    for row in [row for row, is_finite in enumerate(finite) if not is_finite]:
        if not owners[row].done:
            owners[row].end_early()
    places = [row for row, owner in enumerate(owners) if not owner.done]
    if places:
        grow([owners[row] for row in places], rows[places])


def adjusted_rows(works: list[TreeWork], logits: Tensor) -> Tensor:
    """The logits with the options applied."""
    logits = masked_rows(works, logits)
    if not any(work.options.sampling.adjusts_logits for work in works):
        return logits
    return adjust(
        logits, [b for work in works for b in work.held.row_blocks(work.parents, work.row_count, logits.device)]
    )


def masked_rows(works: list[TreeWork], logits: Tensor) -> Tensor:
    """The logits with the masks of structured outputs applied, in a new tensor if there are any."""
    if all(work.held.grammar is None for work in works):
        return logits
    return masked_if_possible(logits, [bits for work in works for bits in structure_masks(work)])


def structure_masks(work: TreeWork) -> list[bytes | None]:
    """The mask of each asked row of a work; None for the others."""
    grammar, asked = work.held.grammar, work.asked_rows
    if grammar is None:
        return [None] * work.row_count
    tokens = work.sequence.tokens
    tree = tokens[len(tokens) - len(work.fed) :]
    before = tokens[work.held.prompt_length : len(tokens) - len(work.fed)]
    paths: list[list[int]] = [[]]
    for token, parent in zip(tree, work.parents or (), strict=True):
        paths.append([*paths[1 + parent], token])
    return [grammar.next_bits([*before, *paths[row]]) if row in asked else None for row in range(work.row_count)]


def grow(owners: list[TreeWork], rows: Tensor) -> None:
    """Grows trees by one level, from the adjusted logits of their frontiers' rows, each with its owner."""
    ranked = [row for row, work in enumerate(owners) if isinstance(work.growth, RankedGrowth)]
    if ranked:
        own = [owners[row] for row in ranked]
        samplings = [work.options.sampling for work in own]
        found = looked_at(samplings, [work.position for work in own], rows[ranked])
        for work, outlooks in grouped(own, found).items():
            work.rank(outlooks)
    drawn = [row for row, work in enumerate(owners) if isinstance(work.growth, PlannedGrowth)]
    if drawn:
        own = [owners[row] for row in drawn]
        for work, counts in grouped(
            own, sparsify(shares([work.options.sampling for work in own], rows[drawn]))
        ).items():
            if all(len(row.token_ids) for row in counts):
                work.draw(counts)
            else:
                work.end_early()


def grouped(owners: list[TreeWork], items: list[Item]) -> dict[TreeWork, list[Item]]:
    """The items of each work, in order."""
    found: dict[TreeWork, list[Item]] = {}
    for work, item in zip(owners, items, strict=True):
        found.setdefault(work, []).append(item)
    return found


def asked_rows(works: list[TreeWork]) -> tuple[list[int], list[TreeWork]]:
    """Which rows are asked for, and the work of each."""
    picked: list[int] = []
    owners: list[TreeWork] = []
    first = 0
    for work in works:
        asked = work.asked_rows
        picked += [first + row for row in asked]
        owners += [work] * len(asked)
        first += work.row_count
    return picked, owners
