"""A short run of training: it learns, keeps a curve, and goes on where it was."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from models.smollm2 import training
from models.smollm2.batches import Corpus, Talk, read_talks
from models.smollm2.draft import make_draft
from models.smollm2.shards import ANSWER, GIVEN, TURN, Record, write_shard
from models.smollm2.training import Plan, Trainer

from .conftest import Tiny

OUTPUTS = list(range(1, 40))


def record(number: int) -> Record:
    """A prompt of three tokens and an answer that counts up from its last."""
    token_ids = [4, 5, 8 + number % 16, *(9 + number % 16 + i for i in range(6))]
    logs = np.log(np.array([0.9, 0.1], dtype=np.float16))
    return Record(
        number=number,
        temperature=float(number % 2),
        token_ids=token_ids,
        kinds=[GIVEN] * 3 + [ANSWER] * 6,
        top_ids=[np.array([token, 2], dtype=np.uint16) for token in token_ids[3:]],
        top_logs=[logs] * 6,
    )


def trainer(tiny: Tiny, folder: Path, steps_in_all: int, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer by whose clock a step takes a minute."""
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr(training, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(Trainer, "now", staticmethod(lambda: float(next(clock))))
    torch.manual_seed(0)
    plan = Plan(minutes=steps_in_all, learning_rate=2e-2, rows=8, check_minutes=1000, overlap=0.5, heat=0.5)
    return Trainer(make_draft(*tiny, [0, 1]), OUTPUTS, folder, plan)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Corpus, list[Talk]]:
    write_shard(tmp_path / "data" / "0.npz", [record(number) for number in range(64)])
    held_out = tmp_path / "held_out.npz"
    write_shard(held_out, [record(number) for number in range(120)])
    return Corpus(tmp_path / "data"), read_talks(held_out)


def test_a_run_learns_and_a_longer_one_goes_on(
    tiny: Tiny, tmp_path: Path, corpus: tuple[Corpus, list[Talk]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trainer(tiny, tmp_path / "run", 30, monkeypatch)
    first.run(*corpus)
    again = trainer(tiny, tmp_path / "run", 40, monkeypatch)
    assert again.progress == first.progress
    for name, parameter in again.draft.trained().items():
        assert torch.equal(parameter, first.draft.trained()[name])
    again.run(*corpus)
    assert again.progress.steps > first.progress.steps
    curve = [json.loads(line) for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert [point["steps"] for point in curve] == [first.progress.steps, again.progress.steps]
    assert curve[-1]["agreement"] > 0.5


def test_talks_have_their_answers_and_no_turns(tmp_path: Path) -> None:
    turn = record(3)
    turn.kinds[2:5] = [TURN] * 3
    turn.top_ids.insert(0, np.array([77, 78], dtype=np.uint16))
    turn.top_logs.insert(0, turn.top_logs[0])
    write_shard(tmp_path / "0.npz", [record(0), turn, record(1)])
    talks = read_talks(tmp_path / "0.npz")
    assert [talk.places.tolist() for talk in talks] == [[2, 3, 4, 5, 6, 7], [4, 5, 6, 7], [2, 3, 4, 5, 6, 7]]
    for talk in talks:
        assert talk.top_ids[:, 0].tolist() == talk.token_ids[talk.places + 1].tolist()


def test_new_shards_join_at_the_next_epoch(corpus: tuple[Corpus, list[Talk]]) -> None:
    talks, _ = corpus
    assert talks.answer_tokens == 64 * 6
    write_shard(talks.folder / "1.npz", [record(number) for number in range(64, 80)])
    talks.refresh()
    talks.refresh()
    assert len(talks.talks) == 80
    groups = list(talks.epoch(np.random.default_rng(0), rows=7))
    assert sorted(talk.number for group in groups for talk in group) == list(range(80))
