"""Judges many proposals at once, by the rules of `specpair.speculation`. Runs on the device thread."""

import math
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from specpair.errors import InvalidGrammarError, NotFiniteError
from specpair.native.library import quick_functions
from specpair.options import Rule
from specpair.speculation.adjustments import adjust
from specpair.speculation.arrays import Array, native, on_host, placed
from specpair.speculation.counted_rows import CountedRows
from specpair.speculation.coupling import choices, verify_choices
from specpair.speculation.draft_rows import DraftRows, stack_blocks
from specpair.speculation.lenience import Lenience, closeness
from specpair.speculation.logprobs import token_logprobs
from specpair.speculation.native_judging import can_judge, judge_natively
from specpair.speculation.own_token import draw_own
from specpair.speculation.sampling import SamplingRows, came_of_finite, finite_rows, likeliest, probabilities
from specpair.speculation.verification import Block, Judgement, packed_rows, verify
from target_service.accepted import Accepted
from target_service.judging_inputs import acceptance_noise, distributions, next_keys
from target_service.masking import check_drawn, masked_rows
from target_service.tree_judging import judge_coupled_trees, judge_drawn_trees, judge_greedy_trees
from target_service.verify_work import VerifyWork

WIDE_SUPPORT = 2048
"""A draft's distribution with more tokens than this is not padded together with ordinary ones."""


class Judge(Protocol):
    """Judges works of one kind."""

    def __call__(self, works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
        """Judges works with their rows `[sum of (K + 1), vocabulary]`, and returns which rows are finite."""
        ...


class Kind(NamedTuple):
    """The properties that works judged together must share."""

    judge: Judge
    rule: Rule | None = None
    """The rule, if `judge` depends on it."""
    is_wide: bool = False
    """Whether the draft's support is wide: blocks are padded to the widest support among them."""


def advance_verification(works: list[VerifyWork], logits: Tensor) -> None:
    """Judges works with logits `[sum of (K + 1), vocabulary]`, kind by kind."""
    adjusted = adjust_rows(works, logits)
    add_probabilities(works, adjusted)
    kinds = by_kind([work for work in works if not work.done], isinstance(native(adjusted), np.ndarray))
    for kind, members in kinds.items():
        own = adjusted if len(members) == len(works) else rows_of(members, works, adjusted)
        settle(members, *kind.judge(members, own))
    add_logprobs(works, logits)


def rows_of(members: list[VerifyWork], works: list[VerifyWork], rows: Tensor) -> Tensor:
    """The rows of `members`, from the rows `[sum of (K + 1), vocabulary]` of all works."""
    parts = dict(zip(works, rows.split([work.row_count for work in works]), strict=True))
    return torch.cat([parts[work] for work in members])


def adjust_rows(works: list[VerifyWork], logits: Tensor) -> Tensor:
    """Applies the options to the logits. Fails works with a row that is not finite before the options, which could hide
    it; the judges find rows that are not finite afterwards."""
    is_structured = any(work.masking is not None for work in works)
    if not is_structured and not any(work.options.sampling.adjusts_logits for work in works):
        return logits
    fail_not_finite(works, finite_rows(logits).tolist())
    return adjust(
        masked_rows(works, logits),
        [block for work in works for block in work.held.row_blocks(work.parents, work.row_count, logits.device)],
    )


def by_kind(works: list[VerifyWork], is_on_host: bool) -> dict[Kind, list[VerifyWork]]:
    """Groups works to judge together, by rows on the host or on a device."""
    kinds: dict[Kind, list[VerifyWork]] = defaultdict(list)
    for work in works:
        kinds[kind_of(work, is_on_host)].append(work)
    return kinds


def kind_of(work: VerifyWork, is_on_host: bool) -> Kind:
    options, is_tree = work.options, work.parents is not None
    if options.sampling.is_greedy and options.lenience == 1.0:
        return Kind(judge_greedy_trees if is_tree else judge_greedy)
    if options.rule is Rule.COUPLED:
        return Kind(judge_coupled_trees if is_tree else judge_coupled)
    assert options.rule in (Rule.TOKEN, Rule.BLOCK), f"no judge for the rule {options.rule}"
    if is_tree:
        return Kind(judge_drawn_trees, options.rule)
    is_wide = work.asked.draft.width > WIDE_SUPPORT
    if is_on_host and options.lenience == 1.0 and isinstance(work.asked.draft, CountedRows):
        return Kind(judge_counted, options.rule, is_wide and quick_functions() is None)  # only numpy pads
    return Kind(judge_drawn, options.rule, is_wide)


def settle(works: list[VerifyWork], accepted: Accepted, finite: list[bool]) -> None:
    """Stores the result in works with finite rows, and fails the others: `finite` `[sum of (K + 1)]`."""
    fail_not_finite(works, finite)
    for work, path, token in zip(works, *accepted, strict=True):
        if not work.done:
            accept(work, path, token)


def accept(work: VerifyWork, path: list[int], next_token: int) -> None:
    """Keeps the accepted tokens, and adds the target's next token. The engine keeps a tree's path in the cache."""
    try:
        check_drawn(work, path)
    except InvalidGrammarError as error:
        work.fail(error)
        return
    first_position = work.first_position
    work.take(path, next_token)
    work.sequence.replace_from(first_position, work.rounds[-1].tokens)
    if work.features is not None:
        work.features = work.features[:, [0, *(1 + index for index in path)]].cpu()


def fail_not_finite(works: list[VerifyWork], finite: list[bool]) -> None:
    """Fails only the works with rows that cannot be sampled: `finite` `[sum of (K + 1)]`."""
    if all(finite):
        return
    first = 0
    for work in works:
        if not all(finite[first : first + work.row_count]):
            work.error, work.done = NotFiniteError(), True
        first += work.row_count


def judge_greedy(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    """Under every rule a greedy target accepts the tokens that it would choose: no noise, no residual, no draw."""
    choices, finite = likeliest(adjusted)
    return chosen(works, choices), finite


def judge_coupled(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    target = distributions(works, adjusted)
    seeds = [work.options.sampling.seed for work in works for _ in range(work.row_count)]
    positions = [work.first_position + row for work in works for row in range(work.row_count)]
    tokens, finite = choices(target, seeds, positions)
    return chosen(works, tokens.tolist()), finite.tolist()


def chosen(works: list[VerifyWork], choices: list[int]) -> Accepted:
    """What the target's choices `[sum of (K + 1)]` make of the proposals."""
    judged = verify_choices(choices, [work.asked.proposed for work in works])
    return Accepted([list(range(one.accepted_count)) for one in judged], [one.next_token for one in judged])


def chains(judgement: Judgement) -> Accepted:
    """The same as paths."""
    return Accepted([list(range(n)) for n in judgement.accepted_counts.tolist()], judgement.next_tokens.tolist())


def judge_drawn(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    """Judges by the token rule or the block rule. From a device the result comes in one synchronisation."""
    target = native(distributions(works, adjusted))
    # A greedy sequence with lenience comes here too; its distribution does not show whether its logits were finite.
    is_any_greedy = any(work.options.sampling.is_greedy for work in works)
    finite = native(finite_rows(adjusted)) if is_any_greedy else came_of_finite(target)
    keys = [placed(part, adjusted.device) for part in next_keys(works)]
    if len(target) == len(works):  # nothing was proposed
        next_tokens, are_finite = on_host([draw_own(target, *keys), finite])
        return chains(Judgement(np.zeros(len(works), dtype=np.int64), next_tokens)), (are_finite > 0).tolist()
    block = block_of(works, adjusted)
    uniforms = placed(acceptance_noise(works, block.tokens.shape[1]), adjusted.device)
    *judged, are_finite = on_host([*verify(target, block, uniforms, *keys), finite])
    return chains(Judgement(*judged)), (are_finite > 0).tolist()


def judge_counted(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    """The same by the compiled library, if it is there, for exact rules and counted distributions on a CPU. These are a
    kind of their own: thresholds may differ in their last bits, and must not depend on the company."""
    target, drafts = native(distributions(works, adjusted)), [work.asked.draft for work in works]
    if not can_judge(target, drafts):
        return judge_drawn(works, adjusted)
    uniforms = acceptance_noise(works, max(len(work.asked.proposed) for work in works))
    decisions = judge_natively(target, drafts, works[0].options.rule, uniforms, *next_keys(works))
    paths, finite = [], []
    for work, decision in zip(works, decisions, strict=True):
        paths.append(list(range(decision.accepted_count)))
        finite += [decision.is_finite] * work.row_count
    return Accepted(paths, [decision.next_token for decision in decisions]), finite


def block_of(works: list[VerifyWork], adjusted: Tensor) -> Block:
    device = adjusted.device
    tokens, lengths = proposals(works)
    rows = placed(packed_rows([len(work.asked.proposed) for work in works], tokens.shape[1]), device)
    tokens, lengths = placed(tokens, device), placed(lengths, device)
    draft = DraftRows(*(placed(part, device) for part in stack_blocks([work.asked.draft.padded for work in works])))
    return Block(tokens, lengths, draft, rows, works[0].options.rule, lenience_of(works, adjusted, rows, tokens))


def proposals(works: list[VerifyWork]) -> tuple[np.ndarray, np.ndarray]:
    """Proposed tokens `[works, K]`, padded with 0, and their numbers `[works]`: int64."""
    counts = [len(work.asked.proposed) for work in works]
    tokens = np.zeros((len(works), max(counts)), dtype=np.int64)
    for row, work in enumerate(works):
        tokens[row, : counts[row]] = work.asked.proposed
    return tokens, np.array(counts)


def lenience_of(works: list[VerifyWork], adjusted: Tensor, rows: Array, tokens: Array) -> Lenience | None:
    """The lenience of these works; None, the default, if all are exact."""
    factors = [work.options.lenience for work in works]
    if min(factors) == 1.0:
        return None
    near = closeness(native(adjusted), rows, tokens)
    is_greedy = [work.options.sampling.is_greedy for work in works]
    return Lenience(placed(np.array(factors), adjusted.device), placed(np.array(is_greedy), adjusted.device), near)


def add_logprobs(works: list[VerifyWork], logits: Tensor) -> None:
    """Adds logprobs of the committed tokens, from the raw logits `[sum of (K + 1), vocabulary]`, to works that request
    them."""
    first, rows, tokens, top_counts, owners = 0, [], [], [], []
    for work in works:
        if work.options.logprobs is not None and work.error is None:
            committed = work.rounds[-1].tokens
            rows += [first, *(first + 1 + index for index in work.path)]
            tokens += committed
            top_counts += [work.options.logprobs] * len(committed)
            owners += [work] * len(committed)
        first += work.row_count
    if rows:
        entries = token_logprobs(logits[rows], tokens, top_counts)
        for work, entry in zip(owners, entries, strict=True):
            work.logprobs.append(entry)


def add_probabilities(works: list[VerifyWork], adjusted: Tensor) -> None:
    """Adds the target's probability of each proposed token, from `[sum of (K + 1), V]`, to works that request them."""
    first = 0
    for work in works:
        count = len(work.asked.proposed)
        if work.call.include_probabilities and count and not work.done:
            sampling = replace(work.options.sampling, temperature=work.options.sampling.temperature or 1.0)
            judging = adjusted[[first + row for row in work.judging_rows]]
            rows = probabilities(judging, SamplingRows([sampling], [count], adjusted.device))
            work.target_probabilities = rows[range(count), work.asked.proposed].tolist()
        first += work.row_count


def sent_probabilities(work: VerifyWork) -> list[float]:
    """The draft's probability of each proposed token; empty if greedy or if no distribution was sent."""
    draft, drawn = work.asked.draft, work.asked.drawn
    if work.options.sampling.is_greedy or not draft.width:
        return []
    if drawn is not None:
        firsts = {draw.node: draw.row for draw in reversed(drawn.draws)}
        return [drawn.rows[firsts[node]].probability(token) for node, token in enumerate(drawn.tree.tokens)]
    return [0.0 if math.isinf(value) else value for value in draft.drawn.tolist()]
