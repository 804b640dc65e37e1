"""Decoding many conversations at once gives what the model says to each alone."""

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from models.smollm2.decoder import Decoder
from models.smollm2.generation import Generator, choose, next_number, write_all
from models.smollm2.prompts import Segment
from models.smollm2.shards import ANSWER, GIVEN, TURN, Record, read_shard, shard_paths
from models.smollm2.target import END

from .conftest import Tiny

PREFIX = (5, 6, 7)
SLOTS, KEPT = 3, 8


def conversation(*given: int) -> tuple[Segment, ...]:
    """A turn of the user and an answer, both by the target, and a second answer."""
    return (
        Segment(given=(*PREFIX, *given)),
        Segment(temperature=0.0, most=4),
        Segment(given=(9, 10)),
        Segment(temperature=0.0, most=6, answer=True),
        Segment(given=(11,)),
        Segment(temperature=0.0, most=3, answer=True),
    )


def decode(tiny: Tiny, conversations: list[tuple[Segment, ...]]) -> list[Record]:
    generator = Generator(Decoder(*tiny, slots=SLOTS, length=40), SLOTS, PREFIX, KEPT)
    return sorted(generator.run(iter(enumerate(conversations))), key=lambda record: record.number)


def test_every_sampled_token_is_the_models_own(tiny: Tiny) -> None:
    config, weights = tiny
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights)
    records = decode(tiny, [conversation(*range(20, 21 + n)) for n in range(7)])
    assert [record.number for record in records] == list(range(7))
    for record in records:
        with torch.inference_mode():
            expected = model(torch.tensor([record.token_ids])).logits[0].float().log_softmax(-1)
        places = [place - 1 for place, kind in enumerate(record.kinds) if kind != GIVEN]
        assert len(places) == len(record.top_ids)
        for place, ids, logs in zip(places, record.top_ids, record.top_logs, strict=True):
            assert record.token_ids[place + 1] == ids[0]
            assert np.abs(expected[place, ids.astype(int)].numpy() - logs).max() < 0.35  # bf16 against float32
            assert logs[0] == logs.max()


def test_turns_end_before_the_next_begins(tiny: Tiny) -> None:
    (record,) = decode(tiny, [conversation(20)])
    kinds = np.array(record.kinds)
    assert {GIVEN, TURN, ANSWER} == set(record.kinds)
    text = record.token_ids
    after_turn = int(np.flatnonzero(kinds == TURN)[-1])
    assert END in text[after_turn : after_turn + 2]
    assert (kinds == TURN).sum() <= 4
    assert (kinds == ANSWER).sum() <= 9


def test_draws_follow_the_whole_distribution() -> None:
    torch.manual_seed(6)
    logits = torch.randn(1, 30)
    ids = logits.topk(4).indices
    logs = logits.log_softmax(-1).gather(1, ids)
    rows = 4000
    drawn = choose(logits.expand(rows, -1), (ids.expand(rows, -1), logs.expand(rows, -1)), torch.ones(rows))
    expected = logits.softmax(-1)[0] * rows
    counts = torch.bincount(drawn, minlength=30)
    assert (((counts - expected) ** 2) / expected).sum() < 29 + 5 * 58**0.5  # chi-squared of 29 degrees
    cold = choose(logits, (ids, logs), torch.zeros(1))
    assert cold.item() == logits.argmax()


def test_shards_go_on_after_what_is_there(tiny: Tiny, tmp_path: Path) -> None:
    assert next_number(tmp_path) == 0
    records = decode(tiny, [conversation(20 + n) for n in range(5)])
    write_all(iter(records), tmp_path, per_shard=2)
    assert next_number(tmp_path) == 5
    shards = [read_shard(path) for path in shard_paths(tmp_path)]
    assert [len(shard.numbers) for shard in shards] == [2, 2, 1]
    for shard in shards:
        assert shard.lengths.sum() == len(shard.token_ids) == len(shard.kinds)
        assert (shard.kinds != GIVEN).sum() == len(shard.top_ids) == len(shard.top_logs)
