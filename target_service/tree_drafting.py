"""The target's own head proposes trees: the likeliest continuations, for rules that are exact for any tree."""

from collections.abc import Sequence

from torch import Tensor

from specpair.models.drafting_runner import Asked, TreeDraftingRunner, TreeRun, WholeTreeDraftingRunner
from specpair.models.tree_row import TreeRow
from specpair.options import SamplingOptions, SequenceOptions
from specpair.speculation.outlook import Outlook, of_logits
from specpair.speculation.sampling import finite_rows
from specpair.speculation.trees.candidates import is_ranked, looked_at
from specpair.speculation.trees.ranked_growth import Candidate, GrowthLimits, RankedGrowth, most_asked
from specpair.speculation.trees.token_tree import ROOT, TokenTree
from specpair.whole_drafting import holding_of
from target_service.own_proposal import OwnDraft
from target_service.verify_work import VerifyWork


def can_have_tree(options: SequenceOptions) -> bool:
    """Whether any tree is exact for the sequence, and its rows need no adjustment that depends on the path."""
    is_plain = options.structured_output is None and not options.sampling.adjusts_logits
    return is_ranked(options) and is_plain and options.lenience == 1.0


def draft_trees(
    runner: TreeDraftingRunner,
    works: list[VerifyWork],
    drafts: list[OwnDraft],
    places: list[Sequence[int]],
    most: list[int],
) -> None:
    """Gives each draft a tree of at most so many tokens, no deeper than its count; `places` as `begin` takes them."""
    growths = [RankedGrowth(limits) for limits in limits_of(drafts, most)]
    holdings = [holding_of(work.sequence) for work in works]
    run = runner.grow(holdings, places, most_asked(max(draft.count for draft in drafts)))
    while any(growth.frontier for growth in growths):
        grow_level(run, growths, drafts)
    for growth, draft in zip(growths, drafts, strict=True):
        take_tree(draft, growth.tree())


def draft_whole_trees(
    runner: WholeTreeDraftingRunner,
    works: list[VerifyWork],
    drafts: list[OwnDraft],
    places: list[Sequence[int]],
    most: list[int],
) -> None:
    """The same in one call of the runner, which must not refuse any of them. Each tree has room for a token."""
    rows = [
        TreeRow(token=draft.sequence.tokens[-1], limits=limits, sampling=draft.options.sampling)
        for draft, limits in zip(drafts, limits_of(drafts, most), strict=True)
    ]
    holdings = [holding_of(work.sequence) for work in works]
    for draft, tree in zip(drafts, runner.grow_whole(holdings, places, rows), strict=True):
        take_tree(draft, tree)


def limits_of(drafts: list[OwnDraft], most: list[int]) -> list[GrowthLimits]:
    return [GrowthLimits(max_nodes=nodes, max_depth=draft.count) for nodes, draft in zip(most, drafts, strict=True)]


def take_tree(draft: OwnDraft, tree: TokenTree) -> None:
    draft.tokens, draft.parents = list(tree.tokens), () if tree.is_chain else tree.parents


def grow_level(run: TreeRun, growths: list[RankedGrowth], drafts: list[OwnDraft]) -> None:
    """Extends every growth by a level. One with a row that is not finite ends as it is."""
    asked = [
        Asked(row, node, growth.parent(node) if node != ROOT else ROOT, last_token(growth, drafts[row], node))
        for row, growth in enumerate(growths)
        for node in growth.frontier
    ]
    logits = run.logits(asked)
    for one, is_finite in zip(asked, finite_rows(logits).tolist(), strict=True):
        if not is_finite:
            growths[one.row].end()
    kept = [place for place, one in enumerate(asked) if growths[one.row].frontier]
    if not kept:
        return
    rows = [asked[place].row for place in kept]
    samplings = [drafts[row].options.sampling for row in rows]
    positions = [len(drafts[row].sequence.tokens) + growths[row].depth for row in rows]
    found = outlooks(run, samplings, positions, logits[kept])
    for row, growth in enumerate(growths):
        if growth.frontier:
            growth.extend([candidates(outlook) for outlook, own in zip(found, rows, strict=True) if own == row])


def outlooks(run: TreeRun, samplings: list[SamplingOptions], positions: list[int], rows: Tensor) -> list[Outlook]:
    """The best tokens of each row `[rows, outputs]`. Those of greedy sequences are found without a row of the whole
    vocabulary, which can be several times as wide."""
    outputs = run.outputs
    if outputs is None:
        return looked_at(samplings, positions, rows)
    if all(sampling.is_greedy for sampling in samplings):
        return [Outlook(outputs.name(list(ids)), shares) for ids, shares in of_logits(rows)]
    return looked_at(samplings, positions, outputs(rows))


def candidates(outlook: Outlook) -> list[Candidate]:
    return [Candidate(*pair) for pair in zip(*outlook, strict=True)]


def last_token(growth: RankedGrowth, draft: OwnDraft, node: int) -> int:
    return draft.sequence.tokens[-1] if node == ROOT else growth.token(node)
