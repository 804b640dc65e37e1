"""Judges proposals that are trees of tokens. Runs on the device thread."""

import numpy as np
from torch import Tensor

from specpair.speculation.arrays import native, placed
from specpair.speculation.randomness import Domain, random_words, uniforms
from specpair.speculation.sampling import came_of_finite, likeliest
from specpair.speculation.trees.drawn_tree import DrawnTree
from specpair.speculation.trees.tree_verification import (
    TreeVerdict,
    follow_choices,
    verify_coupled_trees,
    verify_trees,
)
from target_service.accepted import Accepted
from target_service.judging_inputs import distributions, next_keys
from target_service.verify_work import VerifyWork


def judge_greedy_trees(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    """Under every rule a greedy target follows the tokens that it would choose."""
    choices, finite = likeliest(adjusted)
    return accepted(follow_choices([work.tree for work in works], choices)), finite


def judge_coupled_trees(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    target = distributions(works, adjusted)
    seeds = [work.options.sampling.seed for work in works]
    lengths = [work.first_position for work in works]
    verdicts = verify_coupled_trees(target, [work.tree for work in works], seeds, lengths)
    return accepted(verdicts), came_of_finite(native(target)).tolist()


def judge_drawn_trees(works: list[VerifyWork], adjusted: Tensor) -> tuple[Accepted, list[bool]]:
    """Judges by the token rule or the block rule."""
    target = native(distributions(works, adjusted))
    drawn = [work.asked.drawn or DrawnTree.certain(work.tree) for work in works]
    uniforms = [node_noise(work) for work in works]
    keys = [placed(part, adjusted.device) for part in next_keys(works)]
    verdicts = verify_trees(target, drawn, works[0].options.rule, uniforms, *keys)
    return accepted(verdicts), came_of_finite(target).tolist()


def node_noise(work: VerifyWork) -> np.ndarray:
    """Uniforms `[nodes]`, keyed by the step that verifies the tree and the node."""
    seed, count = work.options.sampling.seed, len(work.asked.proposed)
    return uniforms(random_words(seed, Domain.ACCEPT, work.step, 0, count))


def accepted(verdicts: list[TreeVerdict]) -> Accepted:
    return Accepted([verdict.path for verdict in verdicts], [verdict.next_token for verdict in verdicts])
