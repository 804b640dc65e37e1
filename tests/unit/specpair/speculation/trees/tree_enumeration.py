"""What a round with a tree emits, enumerated: every draw that can be made, every way it can be judged.

Nothing is sampled: `explore` runs a procedure once for every sequence of choices that it can make.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from specpair.options import Rule
from specpair.speculation.trees.drawn_tree import DrawnTree, Row
from specpair.speculation.trees.siblings import siblings_by_parent
from specpair.speculation.trees.token_tree import ROOT
from specpair.speculation.trees.tree_builder import TreeBuilder
from specpair.speculation.trees.tree_rules import End, Offered
from specpair.speculation.trees.tree_verification import RULES, next_weights
from tests.unit.specpair.speculation.enumeration import Model, continuations, joint_distribution

T = TypeVar("T")
Choose: TypeAlias = Callable[[Sequence[float]], int]
"""Chooses an index in proportion to weights that sum to 1."""
Shape: TypeAlias = tuple[int, ...]
"""The parent of each draw: ROOT or an earlier draw."""


def explore(procedure: Callable[[Choose], T]) -> Iterator[tuple[float, T]]:
    """All results of a procedure that makes choices, each with its probability; those of probability 0 are left out."""
    pending: list[list[int]] = [[]]
    while pending:
        script = pending.pop()
        made: list[int] = []
        chance = 1.0

        def choose(weights: Sequence[float], script: list[int] = script, made: list[int] = made) -> int:
            nonlocal chance
            possible = [index for index, weight in enumerate(weights) if weight > 0]
            if len(made) < len(script):
                chosen = script[len(made)]
            else:
                chosen = possible[0]
                pending.extend([*made, other] for other in possible[1:])
            made.append(chosen)
            chance *= weights[chosen]
            return chosen

        result = procedure(choose)
        yield chance, result


def ordered_shapes(count: int) -> list[Shape]:
    """All ordered trees of `count` draws, each once, numbered depth first: each draw follows the one before or one of
    its ancestors."""
    shapes: list[Shape] = [()]
    for number in range(count):
        shapes = [(*shape, parent) for shape in shapes for parent in _rightmost(shape, number)]
    return shapes


def _rightmost(shape: Shape, number: int) -> list[int]:
    """The last of `number` draws, and its ancestors."""
    nodes, node = [ROOT], number - 1
    while node != ROOT:
        nodes.append(node)
        node = shape[node]
    return nodes


def rows_of(model: Model) -> Callable[[Sequence[int]], np.ndarray]:
    """The conditional [V] after a prefix."""
    levels = [level.numpy() for level in model]
    return lambda prefix: levels[len(prefix)][number_of(prefix, levels[0].shape[1])]


def number_of(prefix: Sequence[int], vocab_size: int) -> int:
    number = 0
    for token in prefix:
        number = number * vocab_size + token
    return number


def draw_tree(shape: Shape, draft: Model, choose: Choose, *, replaces: bool = True) -> DrawnTree:
    """Draws a tree from a draft. Without replacement, a draw from a row of which nothing is left is not made, nor those
    below it."""
    conditional, builder = rows_of(draft), TreeBuilder()
    rows: dict[int, int] = {}
    left: dict[int, np.ndarray] = {}
    nodes, prefixes = {ROOT: ROOT}, dict[int, list[int]]({ROOT: []})
    for draw, parent in enumerate(shape):
        if parent not in nodes:
            continue
        at = nodes[parent]
        if at not in rows:
            left[at] = conditional(prefixes[at])
            support = left[at].nonzero()[0]
            rows[at] = builder.add_row(Row(support, left[at][support], replaces))
        if not left[at].any():
            continue
        token = choose(left[at].tolist())
        nodes[draw] = builder.add_draw(at, token, rows[at])
        prefixes[nodes[draw]] = [*prefixes[at], token]
        if not replaces:
            rest = np.where(np.arange(len(left[at])) == token, 0.0, left[at])
            left[at] = rest / (rest.sum() or 1.0)
    return builder.drawn_tree()


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round emits."""

    joint: np.ndarray
    """[V^depth]: distribution of the next tokens, the target writing what the round did not."""
    mean_accepted: float


def emitted(target: Model, trees: Sequence[tuple[float, DrawnTree]], rule: Rule) -> Round:
    """The round of trees that come with these probabilities, no deeper than the target's levels allow."""
    vocab_size, offsets = target[0].shape[1], np.cumsum([0, *(len(level) for level in target)])
    table = np.concatenate([level.numpy() for level in target])
    rows: list[int] = []
    ends: list[End] = []
    own, masses, prefixes = [], list[float](), list[list[int]]()
    for probability, drawn in trees:
        tokens = [[drawn.tree.tokens[node] for node in drawn.tree.path(end)] for end in range(ROOT, len(drawn.tree))]
        numbers = [int(offsets[len(prefix)]) + number_of(prefix, vocab_size) for prefix in tokens]
        siblings = siblings_by_parent(drawn)
        offered = Offered(
            siblings, {parent: table[numbers[parent + 1], below.token_ids] for parent, below in siblings.items()}
        )
        for chance, end in explore(lambda choose, offered=offered: _judge(rule, offered, choose)):
            ends.append(end)
            own.append(siblings)
            masses.append(probability * chance)
            rows.append(numbers[end.node + 1])
            prefixes.append(tokens[end.node + 1])
    weights = next_weights(table, np.array(rows), ends, own)
    mass = weights / weights.sum(-1, keepdims=True) * np.array(masses)[:, None]
    return Round(
        joint=_continued(target, prefixes, mass),
        mean_accepted=sum(len(prefix) * one for prefix, one in zip(prefixes, masses, strict=True)),
    )


def _judge(rule: Rule, offered: Offered, choose: Choose) -> End:
    return RULES[rule](offered, lambda node, threshold: bool(choose((1.0 - threshold, threshold))))


def _continued(target: Model, prefixes: list[list[int]], mass: np.ndarray) -> np.ndarray:
    """The joint distribution of prefixes [N] with the mass [N, V] of the token after each."""
    vocab_size, depth = target[0].shape[1], len(target)
    joint = np.zeros(vocab_size**depth)
    for length in range(depth):
        following = np.zeros((vocab_size**length, vocab_size))
        chosen = [index for index, prefix in enumerate(prefixes) if len(prefix) == length]
        np.add.at(following, [number_of(prefixes[index], vocab_size) for index in chosen], mass[chosen])
        joint += (following.reshape(-1, 1) * continuations(target, length + 1).numpy()).ravel()
    return joint


def distance(round_: Round, target: Model) -> float:
    """Largest difference from the target's own distribution."""
    return float(np.abs(round_.joint - joint_distribution(target).numpy()).max())
