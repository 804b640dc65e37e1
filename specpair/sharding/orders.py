"""What the leading rank of a group tells the others: plain data, and its form as a list of integers.

The others hold no plan of their own: no scheduler, no block pool, no sequences. They store and read where they are
told, so they cannot come to another decision than the leader.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from specpair.sharding.numbers import NumberReader, write_list

PASS, PLAIN, BEAT, STOP = range(4)
NONE = -1
"""Of a parent: there is none. Of a list's length: there is no list."""


class Move(NamedTuple):
    """Slots of the cache whose content is copied before a pass."""

    sources: list[int]
    targets: list[int]


class TableSegment(NamedTuple):
    """Tokens of one sequence in one forward pass, with the blocks of the sequence."""

    blocks: list[int]
    start: int
    token_count: int


@dataclass(frozen=True, kw_only=True)
class PassOrder:
    """A forward pass. The fields from `token_ids` on are those of `specpair.models.batch.Batch`."""

    moves: list[Move]
    """What happened in the cache since the pass before, in order."""
    segments: list[TableSegment]
    token_ids: list[int]
    positions: list[int]
    rows: list[int]
    parents: list[int | None] | None = None
    feature_layers: tuple[int, ...] = ()
    has_all_features: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainOrder:
    """A pass over one sequence without a cache, by the model's own attention, for the check at load."""

    token_ids: list[int]


@dataclass(frozen=True, kw_only=True)
class Beat:
    """Nothing to do: the leader is alive, and asks whether the others are."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The end of the group."""


Order: TypeAlias = PassOrder | PlainOrder | Beat | Stop


def encode(order: Order) -> list[int]:
    """The order as integers."""
    if isinstance(order, Beat):
        return [BEAT]
    if isinstance(order, Stop):
        return [STOP]
    if isinstance(order, PlainOrder):
        return [PLAIN, *write_list(order.token_ids)]
    numbers = [PASS, len(order.moves)]
    for move in order.moves:
        numbers += [*write_list(move.sources), *write_list(move.targets)]
    numbers.append(len(order.segments))
    for segment in order.segments:
        numbers += [*write_list(segment.blocks), segment.start, segment.token_count]
    for part in (order.token_ids, order.positions, order.rows):
        numbers += write_list(part)
    if order.parents is None:
        numbers.append(NONE)
    else:
        numbers += write_list([NONE if parent is None else parent for parent in order.parents])
    return [*numbers, *write_list(order.feature_layers), int(order.has_all_features)]


def decode(numbers: list[int]) -> Order:
    """The order from its integers. Raises ValueError if they are none."""
    reader = NumberReader(numbers)
    kind = reader.number()
    if kind == PASS:
        order: Order = read_pass(reader)
    elif kind == PLAIN:
        order = PlainOrder(token_ids=reader.numbers())
    elif kind in (BEAT, STOP):
        order = Beat() if kind == BEAT else Stop()
    else:
        raise ValueError(f"an order of the unknown kind {kind}")
    reader.finish()
    return order


def read_pass(reader: NumberReader) -> PassOrder:
    moves = [Move(reader.numbers(), reader.numbers()) for _ in range(reader.number())]
    segments = [TableSegment(reader.numbers(), reader.number(), reader.number()) for _ in range(reader.number())]
    token_ids, positions, rows = reader.numbers(), reader.numbers(), reader.numbers()
    parents = reader.numbers_or_none()
    return PassOrder(
        moves=moves,
        segments=segments,
        token_ids=token_ids,
        positions=positions,
        rows=rows,
        parents=None if parents is None else [None if parent == NONE else parent for parent in parents],
        feature_layers=tuple(reader.numbers()),
        has_all_features=bool(reader.number()),
    )
