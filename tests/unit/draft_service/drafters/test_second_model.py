"""A second model reads long sequences over several turns of the draft, then guesses as if it had read them at once."""

import asyncio
from pathlib import Path
from typing import Any

import torch

from draft_service.drafters.guessing import GuessCounts, Guessing, GuessingWork
from draft_service.drafters.second_model import SecondModel
from specpair.models.batch import Batch, PassOutput
from specpair.models.load_runner import load_runner
from specpair.options import SamplingOptions, SequenceOptions
from specpair.sequences.held_sequence import HeldSequence
from specpair.sequences.sequence import Sequence
from tests.services import engine_config
from tests.tiny_models import make_model

BUDGET, SHORT, MOST = 16, 6, 3
GREEDY = SequenceOptions(sampling=SamplingOptions(temperature=0.0))


class Counting:
    """A runner that notes the tokens of its passes."""

    def __init__(self, runner: Any):
        self._runner = runner
        self.fed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, batch: Batch) -> PassOutput:
        self.fed.append(len(batch.token_ids))
        return self._runner.forward(batch)


def second_model(folder: Path, token_budget: int) -> tuple[SecondModel, Counting]:
    facts, runner = load_runner(engine_config(folder))
    counting: Any = Counting(runner)
    loop = asyncio.get_running_loop()
    return SecondModel(facts, counting, loop, token_budget=token_budget, short=SHORT), counting


def work_of(tokens: list[int], count: int, by: SecondModel) -> GuessingWork:
    held: Any = HeldSequence(GREEDY, None, len(tokens), Sequence(tokens), len(tokens))
    own = Guessing(by=by, most=MOST, counts=GuessCounts())
    return GuessingWork(sequence=held.cached, row_count=min(1, count), held=held, step=0, count=count, guessing=own)


async def test_one_call_reads_no_more_than_a_pass(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    texts = [[(7 * place + step) % 64 for step in range(40 + place)] for place in range(3)] + [[5, 4]]
    guesser, counting = second_model(folder, BUDGET)
    whole, _ = second_model(folder, 4096)
    with torch.inference_mode():
        works = [work_of(list(text), count, guesser) for text, count in zip(texts, [5, 0, 5, 5], strict=True)]
        expected = whole.guess([work_of(list(text), 5, whole) for text in texts])
        found = guesser.guess(works)
        assert found[:3] == [None, None, None] and found[3] == expected[3], (
            "one that is short does not wait for the others"
        )
        for _ in range(20):
            assert len(counting.fed) <= MOST and max(counting.fed) <= BUDGET + len(works) * SHORT
            assert sum(counting.fed[1:]) <= (MOST - 1) * len(works) * SHORT and not guesser._turns.works
            if None not in found:
                break
            counting.fed.clear()
            found = guesser.guess(works)
        assert found == [expected[0], [], expected[2], expected[3]]
