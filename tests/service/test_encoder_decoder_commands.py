"""The command line and the page with an encoder-decoder pair: each works, or says which flag does."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner, Result

from command.exactness.draws import draw_one
from command.main import app
from command.pair.up import hint
from specpair.exactness.draws import Draw
from specpair.options import Rule, SamplingOptions
from tests.http_service import http_client
from tests.services import RunningPair, engine_config, running_pair
from tests.tiny_encoder_decoders import generate_greedily, load_plain
from tests.unit.command.trace.test_trace import check_trace

T5 = Path(__file__).parents[2] / "models" / "t5"
TEXT = "the small dog sees a red house ."
COUNT = 20


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[RunningPair]:
    target, draft = (engine_config(T5 / name, max_model_len=64) for name in ("target", "draft"))
    async with running_pair(target, draft, draft_timeout=60.0) as pair:
        yield pair
        await pair.check_clean()


async def run(pair: RunningPair, *words: str, said: str = "") -> Result:
    command, *others = words
    arguments = [command, "--address", pair.address, *others]
    return await asyncio.to_thread(CliRunner().invoke, app, arguments, said)


REFUSED: dict[str, tuple[list[str], str]] = {
    "a prompt": (["generate", "def main"], "--encoder-input: is missing; the target has an encoder"),
    "a message": (["generate", "--chat", "def main"], "--chat: is not for a target with an encoder"),
    "a message for the encoder": (["generate", "--chat", "--encoder-input", TEXT], "--chat: is for a prompt"),
    "a traced prompt": (["trace", "def main"], "--encoder-input: is missing; the target has an encoder"),
    "too much": (["generate", "--encoder-input", "dog " * 600], "--encoder-input: has 601 tokens; at most 512"),
    "a conversation": (["chat"], "has an encoder and holds no conversation; `specpair generate --encoder-input TEXT`"),
    "plain lines": (["chat", "--plain"], "has an encoder and holds no conversation"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_names_the_flag(pair: RunningPair, case: str) -> None:
    words, problem = REFUSED[case]
    result = await run(pair, *words, said="hello\n")
    assert (result.exit_code, problem in result.output) == (2, True), result.output


async def test_a_trace_has_the_rounds(pair: RunningPair, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    flags = ["--max-tokens", "12", "--ignore-eos", "--num-speculative-tokens", "3", "-o", str(file)]
    result = await run(pair, "trace", "--encoder-input", TEXT, *flags)
    assert result.exit_code == 0, result.output
    _, _, *rounds = check_trace(json.loads(file.read_text()))["coordinator", "rounds"]
    assert sum(event["args"]["committed"] for event in rounds) == 12


async def test_up_says_what_suits_the_target(pair: RunningPair) -> None:
    assert "--encoder-input" in await hint(pair.address)
    assert await hint("127.0.0.1:1") == "'def main'"


@pytest.mark.parametrize("as_text", [True, False])
async def test_prompts_of_verify_exactness_are_read_by_the_encoder(pair: RunningPair, as_text: bool) -> None:
    ids = AutoTokenizer.from_pretrained(T5 / "target")(TEXT).input_ids
    greedy = SamplingOptions(temperature=0.0)
    draw = Draw(
        prompt=TEXT if as_text else tuple(ids),
        sampling=greedy,
        rule=Rule.BLOCK,
        num_speculative_tokens=3,
        max_tokens=COUNT,
    )
    drawn = await draw_one(pair.coordinator, draw, has_encoder=True)
    expected = generate_greedily(load_plain(T5 / "target"), ids, COUNT)
    assert list(drawn.token_ids)[: len(expected)] == expected


async def test_the_request_of_the_page_shows_its_rounds(pair: RunningPair) -> None:
    body = {"prompt": TEXT, "max_tokens": COUNT, "temperature": 0, "seed": 1, "num_speculative_tokens": 3}
    async with http_client(pair) as client:
        answer = await client.post("/v1/completions", json={**body, "stream": True, "include_rounds": True})
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")
    ]
    tokens = [token for chunk in chunks for token in chunk.get("specpair", {}).get("tokens", ())]
    assert len(tokens) > 3 and "TOKEN_ORIGIN_ACCEPTED" in {token["origin"] for token in tokens}
