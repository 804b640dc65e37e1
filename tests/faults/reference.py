"""What the target alone gives, undisturbed."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from tests.faults.client import ask
from tests.faults.history import Expected
from tests.faults.workload import MAX_OUTPUTS, Case, Variation

TOGETHER = 4
PLAIN = Variation(num_speculative_tokens=0, deadline_seconds=600.0)


async def read_reference(stub: Any, cases: Sequence[Case]) -> dict[tuple[str, int], Expected]:
    """Each output of each case, by name and index, asked for by itself with K = 0."""
    places = asyncio.Semaphore(TOGETHER)

    async def read(case: Case, index: int) -> tuple[tuple[str, int], Expected]:
        async with places:
            told = await ask(stub, case.output(index), PLAIN)
        assert told.status == "OK", told.status
        (seen,) = told.outputs
        if case.schema is None:
            assert len(seen.token_ids) == case.max_tokens
        elif len(seen.token_ids) < case.max_tokens:  # else it is cut off
            assert jsonschema_rs.is_valid(case.schema, json.loads(seen.text)), seen.text
        return (case.name, index), Expected(token_ids=seen.token_ids, text=seen.text)

    wanted = [(case, index) for case in cases for index in range(MAX_OUTPUTS)]
    return dict(await asyncio.gather(*(read(case, index) for case, index in wanted)))
