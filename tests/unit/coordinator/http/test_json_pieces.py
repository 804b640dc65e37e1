"""Long documents: the same JSON as in one go, in pieces that leave others their turn."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.http.json_pieces import LONG, Rows, encode, rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def lazy(value: Any) -> Any:
    """The same document with every list below the top made as it is encoded."""
    if isinstance(value, dict):
        return {key: lazy(entry) for key, entry in value.items()}
    return Rows(iter(value)) if isinstance(value, list) else value


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_rows_are_encoded_as_lists_are(document: dict[str, Any]) -> None:
    assert json.loads(asyncio.run(encode(lazy(document)))) == document


@pytest.mark.parametrize("count", [0, 1, LONG - 1, LONG, LONG + 1, 5 * LONG, 5 * LONG + 3])
async def test_pieces_add_up_at_every_length(count: int) -> None:
    source = list(range(count))
    document = {"choices": [{"rows": rows((str(i) for i in source), source), "text": "é\u2028"}, {"rows": []}]}
    whole = {"choices": [{"rows": [str(i) for i in source], "text": "é\u2028"}, {"rows": []}]}
    assert await encode(document) == json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


async def test_others_have_their_turn() -> None:
    """As often as there are pieces; rows are not made before."""
    turns = 0
    made: list[int] = []

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def make(row: int) -> int:
        made.append(row)
        assert len(made) <= LONG * (turns + 1), "more was made than one piece at a time"
        return row

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    await encode({"rows": Rows(make(row) for row in range(20 * LONG))})
    counting.cancel()
    assert len(made) == 20 * LONG and turns >= 20


async def test_what_is_no_json_is_our_mistake() -> None:
    for document in ({"x": object()}, {"rows": Rows([1]), "x": object()}):
        with pytest.raises(TypeError, match="object is not JSON"):
            await encode(document)
