"""What an encoder-decoder pair refuses, by name, and how it looks over HTTP and on the command line."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from coordinator.peers.draft_peer import tokenizer_pieces
from models.t5.tokenizer import make_tokenizer
from specpair.errors import VocabularyMismatchError
from specpair.model_info import TokenizerFiles
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sequence_service_pb2, target_service_pb2
from tests.http_service import http_client
from tests.rpc_errors import refused
from tests.services import RunningPair, engine_config, running_draft, running_pair, running_target
from tests.tiny_encoder_decoders import generate_greedily, load_plain, make_encoder_decoder
from tests.tiny_models import make_model

TEXT = "the small dog sees a red house ."
MAX_LENGTH = 64
"""Of the decoder; the encoder of a model with relative positions reads 512 at least."""
LONGEST = 512


@dataclass(frozen=True)
class Served:
    pair: RunningPair
    model: Any
    token_ids: list[int]
    """Of the text."""
    vocab_size: int


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    tokenizer, folder = make_tokenizer(), tmp_path_factory.mktemp("models")
    folders = [make_encoder_decoder(folder / name, "t5", seed=1, vocab_size=len(tokenizer)) for name in ("a", "b")]
    for each in folders:
        tokenizer.save_pretrained(each)
    target, draft = (engine_config(each, max_model_len=MAX_LENGTH) for each in folders)
    async with running_pair(target, draft) as pair:
        ids: list[int] = tokenizer(TEXT).input_ids
        assert ids[-1] == tokenizer.eos_token_id
        yield Served(pair, load_plain(folders[0]), ids, len(tokenizer))
        await pair.check_clean()


def asking(**fields: Any) -> pb.GenerateTokensRequest:
    return pb.GenerateTokensRequest(**{"max_tokens": 8, "sampling": {"temperature": 0.0}, **fields})


async def generate(pair: RunningPair, **fields: Any) -> pb.GenerateTokensResponse:
    """The last response."""
    *_, last = [response async for response in pair.coordinator.GenerateTokens(asking(**fields))]
    return last


async def tokens_of(pair: RunningPair, **fields: Any) -> list[int]:
    responses = pair.coordinator.GenerateTokens(asking(**fields))
    return [token.id async for response in responses for token in response.tokens]


async def test_the_text_is_what_the_encoder_reads(served: Served) -> None:
    expected = generate_greedily(served.model, served.token_ids, 8)
    assert await tokens_of(served.pair, encoder_text=TEXT) == expected
    assert await tokens_of(served.pair, encoder_token_ids={"ids": served.token_ids}) == expected
    summary = (await generate(served.pair, encoder_text=TEXT)).summary
    assert (summary.encoder_token_count, summary.prompt_token_count) == (len(served.token_ids), 1)


REQUESTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({}, "encoder_text", "the target has an encoder"),
    "both": ({"encoder_text": "a", "encoder_token_ids": {"ids": [3]}}, "encoder_text", "both set"),
    "no token": ({"encoder_token_ids": {"ids": []}}, "encoder_token_ids", "at least 1"),
    "too many": ({"encoder_token_ids": {"ids": [3] * (LONGEST + 1)}}, "encoder_token_ids", f"at most {LONGEST}"),
    "a long text": ({"encoder_text": "dog " * LONGEST}, "encoder_text", f"at most {LONGEST}"),
    "a longer text": ({"encoder_text": "dog " * 10_000}, "encoder_text", "characters"),
    "no such token": ({"encoder_token_ids": {"ids": [10_000]}}, "encoder_token_ids", "10000"),
    "a prompt as text": ({"encoder_text": "a", "text": "b"}, "text", "encoder_text"),
    "a conversation": ({"encoder_text": "a", "chat": {"messages": []}}, "chat", "one text"),
}


@pytest.mark.parametrize("case", REQUESTS)
async def test_a_request_that_does_not_fit_names_the_field(served: Served, case: str) -> None:
    fields, field, problem = REQUESTS[case]
    with pytest.raises(grpc.aio.AioRpcError, match=problem) as caught:
        await generate(served.pair, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value.details()).startswith(f"{field}: ")


@pytest.mark.parametrize(("field", "value"), [("echo", True), ("prompt_logprobs", 1)])
async def test_what_is_not_supported_is_said(served: Served, field: str, value: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=f"{field}: not supported") as caught:
        await generate(served.pair, encoder_text=TEXT, **{field: value})
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_services_check_for_themselves(served: Served) -> None:
    target: Any = served.pair.target
    for ids, limit in (([], "1"), ([3] * (LONGEST + 1), str(LONGEST)), ([10_000], str(served.vocab_size - 1))):
        request = sequence_service_pb2.OpenSequenceRequest(
            sequence_id="x",
            token_ids=[0],
            sampling={"seed": 1},
            encoder_token_ids=ids,  # type: ignore[arg-type]
        )
        found = await refused(target.sequences.OpenSequence(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert found == {"field": "encoder_token_ids", "limit": limit}
    scoring = target_service_pb2.ScoreTokensRequest(token_ids=[1, 2, 3])
    await refused(target.hot.ScoreTokens(scoring), grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED")


async def test_the_prompt_of_a_completion_is_what_the_encoder_reads(served: Served) -> None:
    async with http_client(served.pair) as client:
        answers = []
        for prompt in (TEXT, served.token_ids, [TEXT, TEXT]):
            body = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
            answers.append((await client.post("/v1/completions", json=body)).raise_for_status().json())
    texts = [choice["text"] for answer in answers for choice in answer["choices"]]
    assert len(texts) == 4 and len(set(texts)) == 1 and texts[0]
    assert [answer["usage"]["prompt_tokens"] for answer in answers] == [len(served.token_ids) + 1] * 2 + [
        2 * (len(served.token_ids) + 1)
    ]


async def status_and_error(client: httpx.AsyncClient, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    response = await client.post(f"/v1/{path}", json=body)
    return response.status_code, response.json()["error"]


async def test_http_names_its_own_parameters(served: Served) -> None:
    async with http_client(served.pair) as client:
        for prompt in ([3] * (LONGEST + 1), "dog " * LONGEST, "dog " * 10_000):
            status, error = await status_and_error(client, "completions", prompt=prompt)
            assert (status, error["param"], error["code"]) == (400, "prompt", "context_length_exceeded")
            assert "fit the encoder" in error["message"]
        messages = [{"role": "user", "content": "a"}]
        status, error = await status_and_error(client, "chat/completions", messages=messages)
        assert (status, error["param"]) == (400, "messages") and "encoder" in error["message"]
        status, error = await status_and_error(client, "responses", input="a")
        assert (status, error["param"]) == (400, "input") and "encoder" in error["message"]
        status, error = await status_and_error(client, "completions", prompt=TEXT, echo=True)
        assert status == 400 and "echo" in error["message"]


async def test_a_draft_of_the_other_kind_is_refused_when_they_are_paired(served: Served, tmp_path: Path) -> None:
    decoder = engine_config(make_model(tmp_path / "decoder", vocab_size=served.vocab_size))
    encoder = engine_config(make_encoder_decoder(tmp_path / "encoder", "t5", vocab_size=served.vocab_size))
    for target_config, draft_config in ((encoder, decoder), (decoder, encoder)):
        async with running_target(target_config) as target, running_draft(draft_config) as draft:
            config = CoordinatorConfig(
                server=ServerConfig(port=0), target_addresses=(target.address,), draft_addresses=(draft.address,)
            )
            with pytest.raises(VocabularyMismatchError, match="a decoder alone"):
                async with connect_pair(config):
                    pass


async def test_no_draft_translates_what_an_encoder_reads(served: Served, tmp_path: Path) -> None:
    """Though their tokenizers could be translated, as those of decoders are."""
    tokenizer, other = make_tokenizer(), make_tokenizer()
    other.add_tokens(["another"])
    names = {"target": tokenizer, "encoder": other, "decoder": tokenizer}
    makers = {"decoder": make_model}
    folders = {
        name: makers.get(name, make_encoder_decoder)(tmp_path / name, vocab_size=len(tokens))
        for name, tokens in names.items()
    }
    for name, tokens in names.items():
        tokens.save_pretrained(folders[name])
    for target_name, draft_name in (("target", "encoder"), ("target", "decoder"), ("decoder", "target")):
        async with (
            running_target(engine_config(folders[target_name])) as target,
            running_draft(engine_config(folders[draft_name])) as draft,
        ):
            config = CoordinatorConfig(
                server=ServerConfig(port=0), target_addresses=(target.address,), draft_addresses=(draft.address,)
            )
            with pytest.raises(VocabularyMismatchError, match=r"a decoder alone|has an encoder"):
                async with connect_pair(config):
                    pass
            if draft_name != "decoder":
                handing = tokenizer_pieces(
                    TokenizerFiles(tokenizer_json=b"{}", chat_template="", bos_token="", eos_token="")
                )
                await refused(
                    draft.hot.TakeTargetTokenizer(handing), grpc.StatusCode.FAILED_PRECONDITION, "VOCABULARY_MISMATCH"
                )


async def test_a_target_without_an_encoder_takes_nothing_for_it(tmp_path: Path) -> None:
    async with running_pair(engine_config(make_model(tmp_path))) as pair:
        for fields in ({"encoder_text": "a"}, {"encoder_token_ids": {"ids": [1]}}):
            with pytest.raises(grpc.aio.AioRpcError, match="the target has no encoder"):
                await generate(pair, token_ids={"ids": [1]}, **fields)
        request = sequence_service_pb2.OpenSequenceRequest(
            sequence_id="x",
            token_ids=[0],
            sampling={"seed": 1},
            encoder_token_ids=[1],  # type: ignore[arg-type]
        )
        call = pair.target.sequences.OpenSequence(request)
        assert (await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"))["limit"] == "0"
