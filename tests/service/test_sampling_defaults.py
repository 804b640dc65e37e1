"""The model's sampling defaults mean the same over gRPC, over HTTP and for the commands."""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from command.main import app
from specpair.errors import ModelRefusedError
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from target_service.verifier import Verifier
from tests.http_service import BUNDLED, PROMPT
from tests.services import RunningPair, engine_config, running_pair

DEFAULTS = {"temperature": 0.5, "top_k": 7, "top_p": 0.875, "min_p": 0.0625, "repetition_penalty": 1.25}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
COUPLED = {"seed": 3, "rule": "coupled", "max_tokens": 24}
"""The output depends on prompt, options and seed alone."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("defaults") / "target"
    shutil.copytree(BUNDLED / "target", folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "do_sample": True, **DEFAULTS}))
    return folder


@pytest.fixture(scope="module")
async def pair(folder: Path) -> AsyncIterator[RunningPair]:
    models = (engine_config(path, block_size=16) for path in (folder, BUNDLED / "draft"))
    async with running_pair(*models, num_speculative_tokens=3) as pair:
        yield pair
        await pair.check_clean()


@pytest.fixture(scope="module")
async def neutral_pair(folder: Path) -> AsyncIterator[RunningPair]:
    """Its target has the same file, and does not use it."""
    async with running_pair(engine_config(folder, block_size=16, generation_config="none")) as pair:
        yield pair


async def over_grpc(pair: RunningPair, **sampling: Any) -> tuple[str, pb.GenerationSummary]:
    request = pb.GenerateTokensRequest(
        text=PROMPT,
        max_tokens=24,
        rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
        sampling={"seed": 3, **sampling},  # type: ignore[arg-type]
    )
    responses = [response async for response in pair.coordinator.GenerateTokens(request)]
    return "".join(response.text for response in responses), responses[-1].summary


async def over_http(pair: RunningPair, **parameters: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"http://{pair.http_address}", timeout=60) as client:
        answer = await client.post("/v1/completions", json={"prompt": PROMPT, **COUPLED, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def by_command(pair: RunningPair, *words: str) -> str:
    arguments = ["--address", pair.address, *words]
    result = await asyncio.to_thread(CliRunner().invoke, app, [words[0], *arguments[:2], *words[1:]])
    assert result.exit_code == 0, result.output
    return result.stdout


async def generated(pair: RunningPair, *words: str) -> dict[str, Any]:
    options = ("--seed", "3", "--rule", "coupled", "--max-tokens", "24")
    return json.loads(await by_command(pair, "generate", PROMPT, "--json", *options, *words))


async def test_every_front_end_applies_what_the_model_says(pair: RunningPair) -> None:
    expected, summary = await over_grpc(pair, **DEFAULTS)
    assert expected != (await over_grpc(pair, **NEUTRAL))[0], "the options change this output"
    text, own = await over_grpc(pair)
    assert text == expected
    assert own.sampling == summary.sampling == sampling_pb2.SamplingOptions(**DEFAULTS)  # type: ignore[arg-type]
    for parameters in ({}, dict.fromkeys(DEFAULTS)):
        answer = await over_http(pair, **parameters)
        assert (answer["choices"][0]["text"], answer["metrics"]["sampling"]) == (expected, DEFAULTS)
    document = await generated(pair)
    assert document["choices"][0]["text"] == expected
    assert document["choices"][0]["metrics"]["sampling"] == DEFAULTS


async def test_what_a_request_sets_wins_everywhere(pair: RunningPair, neutral_pair: RunningPair) -> None:
    expected, summary = await over_grpc(neutral_pair)
    assert summary.sampling == sampling_pb2.SamplingOptions(**NEUTRAL)  # type: ignore[arg-type]
    assert (await over_grpc(pair, **NEUTRAL))[0] == expected
    assert (await over_http(pair, **{**NEUTRAL, "top_k": -1}))["choices"][0]["text"] == expected
    flags = [word for name, value in NEUTRAL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert (await generated(pair, *flags))["choices"][0]["text"] == expected
    greedy = await over_http(pair, temperature=0)
    assert greedy["metrics"]["sampling"] == {**DEFAULTS, "temperature": 0.0}


async def test_a_beam_search_is_the_same_with_and_without_them(pair: RunningPair, neutral_pair: RunningPair) -> None:
    texts = [
        (await over_http(one, rule=None, seed=None, num_beams=2, max_tokens=6))["choices"][0]["text"]
        for one in (pair, neutral_pair)
    ]
    assert texts[0] == texts[1]


async def test_info_says_what_requests_get(pair: RunningPair, neutral_pair: RunningPair) -> None:
    info = await pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert info.sampling_defaults == info.target.sampling_defaults == sampling_pb2.SamplingOptions(**DEFAULTS)  # type: ignore[arg-type]
    assert not info.draft.HasField("sampling_defaults")
    shown = " ".join((await by_command(pair, "info")).split())
    assert "temperature 0.5, top_k 7, top_p 0.875, min_p 0.0625, repetition_penalty 1.25" in shown
    plain = await neutral_pair.coordinator.GetPairInfo(pb.GetPairInfoRequest())
    assert not plain.HasField("sampling_defaults") and not plain.target.HasField("sampling_defaults")


async def test_the_log_says_once_that_they_are_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        verifier = await Verifier.start(engine_config(folder))
        await verifier.stop()
    lines = [line for line in caplog.messages if "temperature 0.5, top_k 7" in line]
    assert len(lines) == 1 and "--generation-config" in lines[0]


async def test_a_wrong_value_is_refused_before_the_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"top_p": 1.5}')
    with pytest.raises(ModelRefusedError, match=r"generation_config.json: top_p: is 1.5; it must be above 0"):
        await Verifier.start(engine_config(tmp_path))
    with pytest.raises(ModelRefusedError, match="has no readable configuration"):
        await Verifier.start(engine_config(tmp_path, generation_config="none"))
