"""The short form of `python -m tests.faults`: real processes, broken on purpose under load."""

from pathlib import Path

import pytest

from tests.faults.__main__ import run
from tests.faults.options import Options


@pytest.mark.timeout(420)
async def test_nothing_is_lost_while_processes_and_ways_break(tmp_path: Path) -> None:
    options = Options(
        seed=1,
        events=12,
        streams=8,
        targets=1,
        drafts=1,
        cases=6,
        max_tokens=96,
        mean_pause=1.0,
        longest_fault=1.5,
        most_minutes=3.0,
    )
    document, complaints = await run(options, tmp_path)
    assert complaints == []
    assert document["faults_of_processes"] >= 12
    assert document["faults_of_ways"] > 0
    assert document["compared_tokens"] > 200
    assert document["statuses"]["OK"] > 0
