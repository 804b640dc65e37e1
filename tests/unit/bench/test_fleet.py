"""The arithmetic of `bench.fleet`; its processes are those of the services' own tests."""

import os

import pytest

from bench.fleet.__main__ import distinct, row_of
from bench.fleet.layout import Layout, Proposer
from bench.fleet.load import Load, added_ms
from bench.processes import processor_seconds
from specpair.v1 import coordinator_service_pb2 as pb


def report(draft_start: int, verify_start: int, queue: int = 100) -> pb.RoundReport:
    return pb.RoundReport(
        draft=pb.CallTimes(start_us=draft_start, elapsed_us=5_000, queue_us=queue, compute_us=4_000),
        verify=pb.CallTimes(start_us=verify_start, elapsed_us=21_000, queue_us=0, compute_us=20_000),
    )


def test_what_a_round_adds_is_its_time_without_work_and_queues_of_the_services() -> None:
    """From the verdict at 27.5 ms to that at 56 ms, 24.1 ms of which were work and queues."""
    assert added_ms(report(1_000, 6_500), report(28_100, 35_000)) == pytest.approx(4.4)


def test_a_round_without_a_proposal_has_a_verification_alone() -> None:
    plain = pb.RoundReport(verify=pb.CallTimes(start_us=27_600, elapsed_us=21_000, compute_us=20_000))
    assert added_ms(report(1_000, 6_500), plain) == pytest.approx(1.1)


def test_what_was_prepared_beside_the_pass_before_is_no_time_of_a_round() -> None:
    assert added_ms(report(1_000, 6_500), report(10_000, 27_500)) == pytest.approx(1.0)


def test_of_a_late_proposal_the_work_after_the_verdict_counts() -> None:
    """It was drawn from 25 ms to 29.1 ms, and the verdict before it came at 27.5 ms."""
    late = report(25_000, 29_500, queue=0)
    late.draft.elapsed_us = 4_100
    assert added_ms(report(1_000, 6_500), late) == pytest.approx(23.0 - 20.0 - 1.6)


def test_a_layout_names_what_it_has() -> None:
    assert Layout(proposer=Proposer.HEAD).name == "1 target"
    assert Layout(draft_count=2, coordinator_count=2).name == "2 drafts, 1 target, 2 coordinators"


def test_prompts_that_are_used_again_begin_elsewhere() -> None:
    prompts = distinct([[1, 2, 3], [4, 5, 6]], 6)
    assert prompts == [[1, 2, 3], [4, 5, 6], [2, 3, 1], [5, 6, 4], [3, 1, 2], [6, 4, 5]]


def test_a_row_has_rates_and_costs() -> None:
    load = Load(streams=2, seconds=10.0, tokens=500, coordinator_seconds=1.0, added=[1.0, 2.0, 9.0], rounds=200)
    load.spread = {"drafts": [1, 1], "targets": [2]}
    row = row_of(Layout(draft_count=2), load)
    assert (row["layout"], row["tokens_per_second"], row["added_ms"]) == ("2 drafts, 1 target", 50.0, 2.0)
    assert (row["rounds_per_second"], row["cores"], row["ms_per_round"], row["spread"]) == (20.0, 0.1, 5.0, "1 1 / 2")


def test_processor_time_grows_with_work() -> None:
    before = processor_seconds(os.getpid())
    while processor_seconds(os.getpid()) < before + 0.05:
        sum(range(10_000))
