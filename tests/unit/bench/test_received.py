"""The figures of a turn from what its clients received."""

import pytest

from bench.measurement import Counts
from bench.received import Received, output_of


def test_times_begin_with_the_first_tokens_and_end_with_the_last_output() -> None:
    one = Received(token_ids=[1, 2, 3], count=3, first_count=1, arrivals=[11.0, 12.0, 14.0])
    other = Received(token_ids=[4, 5, 6], count=4, first_count=2, arrivals=[11.5, 15.0])
    output = output_of([one, other], 10.0, Counts(rounds=3))
    assert output.token_ids == [[1, 2, 3], [4, 5, 6]]
    assert output.first_token_seconds == pytest.approx(1.0)
    assert output.seconds == pytest.approx(4.0)
    assert output.output_seconds == pytest.approx(3.0 + 3.5)
    assert output.round_seconds == pytest.approx([1.0, 2.0, 3.5])
    assert output.counts.rounds == 3


def test_tokens_are_those_after_the_first_message_also_where_ids_were_left_out() -> None:
    received = Received(token_ids=[1, 3], count=4, first_count=1, arrivals=[1.0, 2.0])
    assert output_of([received], 0.0, Counts()).tokens == 3
