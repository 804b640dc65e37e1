"""Counts follow an output wherever it goes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.output_counts import OutputCounts


@given(st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=8))
def test_counts_are_those_of_the_present_output_alone(outputs: list[list[int]]) -> None:
    counts = OutputCounts()
    for output in outputs:
        token_ids, frequencies = counts.of(output)
        assert dict(zip(token_ids.tolist(), frequencies.tolist(), strict=True)) == Counter(output)
