"""What the leader tells arrives as it was told."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.models.batch import Batch
from specpair.sharding.orders import Beat, Move, Order, PassOrder, PlainOrder, Stop, TableSegment, decode, encode

numbers = st.lists(st.integers(0, 2**40), max_size=12)
passes = st.builds(
    PassOrder,
    moves=st.lists(st.builds(Move, numbers, numbers), max_size=3),
    segments=st.lists(st.builds(TableSegment, numbers, st.integers(0, 2**30), st.integers(0, 99)), max_size=4),
    token_ids=numbers,
    positions=numbers,
    rows=numbers,
    parents=st.none() | st.lists(st.none() | st.integers(0, 99), max_size=8),
    feature_layers=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    has_all_features=st.booleans(),
)
orders = passes | st.builds(PlainOrder, token_ids=numbers) | st.just(Beat()) | st.just(Stop())


@given(orders)
def test_an_order_arrives_as_it_was_told(order: Order) -> None:
    assert decode(encode(order)) == order


@given(orders, st.data())
def test_what_is_cut_or_too_long_is_no_order(order: Order, data: st.DataObject) -> None:
    told = encode(order)
    cut = data.draw(st.integers(0, len(told) - 1))
    for wrong in (told[:cut], [*told, 0]):
        with pytest.raises(ValueError, match="numbers"):
            decode(wrong)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 9"):
        decode([9])


def test_every_field_of_a_batch_travels() -> None:
    """A field that is new in a batch has to be told, or the ranks run different passes."""
    refused = {"encoder_inputs"}  # refuse_undivided refuses models that have them
    assert {field.name for field in fields(PassOrder)} - {"moves"} == {field.name for field in fields(Batch)} - refused
