"""The draft model's process: what its configuration asks of the engine."""

import asyncio

from draft_service.model_host import DraftModel
from specpair.engine.work import Work
from specpair.engine_config import EngineConfig, Pace
from specpair.named_models import BUNDLED, model_folder
from specpair.sequences.sequence import Sequence

PACE = Pace(0.2, 0.1)
TOKENS = [5, 6, 7]


def test_passes_have_the_pace_that_was_asked_for() -> None:
    """Also those that only read a prompt."""

    async def compute_time() -> float:
        model = await DraftModel.start(EngineConfig(model=model_folder(BUNDLED, "draft"), pace=PACE))
        try:
            work = Work(sequence=Sequence(TOKENS), row_count=0)
            await model.engine.run(work)
            return work.compute_time
        finally:
            await model.stop()

    assert asyncio.run(compute_time()) >= PACE.of_pass(len(TOKENS))
