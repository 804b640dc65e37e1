"""How prompts are read, beside llama.cpp."""

from dataclasses import replace

import pytest

from bench.case import Case, Peer, Weights
from bench.llama_options import LlamaOptions
from bench.measurement import Counts, Measurement, Output, Turn
from bench.options import BenchOptions
from bench.reading import SPECPAIR, cases_of, lengths_of, rows_of

OPTIONS = BenchOptions(target="target", draft="draft", max_tokens=64, llama=LlamaOptions(server="server"))
LLAMA = {
    weights: Case(peer=Peer.LLAMA, temperature=0.0, num_speculative_tokens=0, weights=weights)
    for weights in (Weights.BF16, Weights.Q8_0)
}


def measured(case: Case, first_token_seconds: float, seconds: float) -> list[Measurement]:
    """A turn for each of two lengths; the second takes ten times as long."""
    return [
        Measurement(
            turn=Turn(case=case, prompt=place, repetition=0),
            output=Output(
                token_ids=[[1] * 11],
                first_token_seconds=factor * first_token_seconds,
                tokens=10,
                seconds=factor * seconds,
                output_seconds=factor * seconds,
                round_seconds=[],
                counts=Counts(),
            ),
        )
        for place, factor in enumerate((1, 10))
    ]


def test_lengths_leave_room_for_the_output() -> None:
    assert lengths_of(OPTIONS, 2048) == [128, 512, 1024, 1900]
    assert lengths_of(OPTIONS, 1087) == [128, 512]


def test_nothing_speculates() -> None:
    assert cases_of(OPTIONS) == [SPECPAIR, *LLAMA.values()]
    assert cases_of(replace(OPTIONS, llama=None)) == [SPECPAIR]


def test_times_are_those_of_one_length_beside_the_faster_llama() -> None:
    measurements = [
        *measured(SPECPAIR, 0.2, 0.5),
        *measured(LLAMA[Weights.BF16], 0.8, 0.6),
        *measured(LLAMA[Weights.Q8_0], 0.4, 1.0),
    ]
    own, bf16, _ = rows_of(OPTIONS, 1, 100, measurements)
    assert (own.first_token_ms, own.read_per_second, own.token_ms) == pytest.approx((2000.0, 50.0, 500.0))
    assert own.reading is not None and own.reading.value == pytest.approx(2.0)  # by Q8_0
    assert own.writing is not None and own.writing.value == pytest.approx(1.2)  # by bf16
    assert bf16.reading is None and bf16.first_token_ms == pytest.approx(8000.0)


def test_without_llama_there_is_nothing_to_compare_with() -> None:
    (own,) = rows_of(replace(OPTIONS, llama=None), 0, 100, measured(SPECPAIR, 0.2, 0.5))
    assert own.reading is own.writing is None
