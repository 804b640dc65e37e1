"""Trees of the draft model: the likeliest continuations, level by level, with one forward pass for each.

For greedy targets and the coupled rule, which are exact for any tree (`specpair.speculation.trees.ranked_growth`).
"""

from dataclasses import dataclass, field

from torch import Tensor

from draft_service.proposal import Drafted
from specpair.engine.work import Work
from specpair.errors import NotFiniteError
from specpair.options import Drafter, Rule, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.speculation.adjustments import adjust
from specpair.speculation.gumbel import choose_and_look
from specpair.speculation.outlook import WIDTH, Outlook, of_logits
from specpair.speculation.sampling import SamplingRows, finite_rows, probabilities
from specpair.speculation.trees.ranked_growth import Candidate, RankedGrowth
from specpair.speculation.trees.token_tree import ROOT


@dataclass(eq=False, kw_only=True)
class TreeWork(Work):
    """The engine's work for one tree. Each pass feeds all nodes whose continuations were asked for so far."""

    held: HeldSequence[Drafted]
    growth: RankedGrowth
    fed: list[int] = field(default_factory=list)
    """The nodes of the growth that are fed, in order."""

    @property
    def options(self) -> SequenceOptions:
        return self.held.options

    @property
    def asked_rows(self) -> list[int]:
        """The rows, among its own, of the growth's frontier."""
        return [0 if node == ROOT else 1 + self.fed.index(node) for node in self.growth.frontier]

    def extend(self, outlooks: list[Outlook]) -> None:
        """Adds the continuations of the frontier, and feeds the next one."""
        self.growth.extend([[Candidate(*pair) for pair in zip(*outlook, strict=True)] for outlook in outlooks])
        self.done = not self.growth.frontier
        tokens = self.sequence.tokens
        del tokens[len(tokens) - len(self.fed) :]
        if not self.done:
            self.fed += self.growth.frontier
            places = {ROOT: ROOT} | {node: place for place, node in enumerate(self.fed)}
            tokens += [self.growth.token(node) for node in self.fed]
            self.parents = tuple(places[self.growth.parent(node)] for node in self.fed)
            self.row_count = 1 + len(self.fed)

    def drafted(self) -> Drafted:
        """The proposal, once the work is done."""
        tree = self.growth.tree()
        return Drafted(
            drafter=Drafter.MODEL,
            tokens=list(tree.tokens),
            parents=None if tree.is_chain else tree.parents,
            counts=[],
            dense=[],
            queue_time=self.queue_time,
            compute_time=self.compute_time,
            batch_size=self.largest_batch.sequence_count if self.largest_batch else 0,
            rollback_time=self.rollback_time,
        )


def can_grow_trees(options: SequenceOptions) -> bool:
    """Whether sequences with these options can have trees that were not drawn."""
    return options.rule is Rule.COUPLED or (options.sampling.is_greedy and options.lenience == 1.0)


def advance_trees(works: list[TreeWork], logits: Tensor) -> None:
    """Grows every tree by one level, from logits `[sum of row counts, vocabulary]`."""
    picked, owners = asked_rows(works)
    for work, own in zip(works, logits.split([work.row_count for work in works]), strict=True):
        if work.options.vocab_size is not None:
            own[:, work.options.vocab_size :] = float("-inf")
    blocks = [b for work in works for b in work.held.row_blocks(work.parents, work.row_count, logits.device)]
    rows = adjust(logits, blocks)[picked]
    finite = finite_rows(logits[picked]).tolist()
    outlooks = looked_at(owners, rows)
    for work in works:
        own_rows = [row for row, owner in enumerate(owners) if owner is work]
        if all(finite[row] for row in own_rows):
            work.extend([outlooks[row] for row in own_rows])
        else:
            work.fail(NotFiniteError())


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


def looked_at(owners: list[TreeWork], rows: Tensor) -> list[Outlook]:
    """The best tokens of each row of adjusted logits: of greedy sequences the likeliest, of others those that the
    target is likely to choose with the noise of the position."""
    coupled = [row for row, work in enumerate(owners) if not work.options.sampling.is_greedy]
    outlooks = of_logits(rows)
    if coupled:
        works = [owners[row] for row in coupled]
        sampling = [work.options.sampling for work in works]
        shares = probabilities(rows[coupled], SamplingRows(sampling, [1] * len(works), rows.device))
        seeds = [options.seed for options in sampling]
        found = choose_and_look(shares, seeds, [position(work) for work in works], WIDTH)[1]
        for row, outlook in zip(coupled, found, strict=True):
            outlooks[row] = outlook
    return outlooks


def position(work: TreeWork) -> int:
    """Position of the tokens that follow the frontier, whose nodes are all equally deep."""
    return len(work.sequence.tokens) - len(work.fed) + work.growth.depth
