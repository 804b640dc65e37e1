"""vLLM's endpoints for clients that count tokens: from text to tokens and back.

Each takes a place while it works, like a request for one output, and has the same limits.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from coordinator.http.front_end import FrontEnd
from coordinator.http.json_pieces import encode, rows
from coordinator.http.models import check_model
from coordinator.http.parameter_names import CHAT_PARAMETERS, PARAMETERS, Names
from coordinator.http.token_parameters import DetokenizeParameters, TokenizeParameters, tokenized_request
from coordinator.http.whole_answer import whole_answer
from coordinator.requests.prompt import PromptReader
from coordinator.serving.serving import Serving
from specpair.v1 import coordinator_service_pb2 as pb

router = APIRouter()


@router.post("/tokenize")
async def tokenize(request: Request, parameters: TokenizeParameters) -> Response:
    """The tokens of a text, or of a conversation by the model's chat template."""
    serving = _serving_of(request, parameters.model)
    message = tokenized_request(parameters)

    async def work(reader: PromptReader) -> dict[str, Any]:
        token_ids = await _tokenize(reader, message, parameters.add_special_tokens)
        strings = await reader.strings(token_ids) if parameters.return_token_strs else None
        return {
            "count": len(token_ids),
            "max_model_len": reader.target.max_model_len,
            "tokens": rows(token_ids, token_ids),
            "token_strs": None if strings is None else rows(strings, strings),
        }

    return await _answer(request, serving, message, work, CHAT_PARAMETERS if message.HasField("chat") else PARAMETERS)


@router.post("/detokenize")
async def detokenize(request: Request, parameters: DetokenizeParameters) -> Response:
    """The text of tokens, with special tokens."""
    serving = _serving_of(request, parameters.model)
    message = pb.GenerateTokensRequest(token_ids=pb.TokenIds(ids=parameters.tokens))

    async def work(reader: PromptReader) -> dict[str, Any]:
        return {"prompt": await reader.decode(parameters.tokens)}

    return await _answer(request, serving, message, work, PARAMETERS)


async def _tokenize(
    reader: PromptReader, message: pb.GenerateTokensRequest, add_special_tokens: bool | None
) -> list[int]:
    if message.HasField("chat"):
        return await reader.encode_chat(message.chat, add_special_tokens=bool(add_special_tokens))
    return await reader.encode_text(message.text, add_special_tokens=add_special_tokens is not False)


def _serving_of(request: Request, model: str | None) -> Serving:
    front_end: FrontEnd = request.app.state.front_end
    check_model(model, front_end.serving)
    return front_end.serving


async def _answer(
    request: Request,
    serving: Serving,
    message: pb.GenerateTokensRequest,
    work: Callable[[PromptReader], Awaitable[dict[str, Any]]],
    names: Names,
) -> Response:
    """The answer that `work` makes, once there is a place for it."""

    async def body() -> bytes:
        async with serving.admit([message]):
            target = serving.pair.target
            return await encode(await work(PromptReader(target=target.info, tokenizer=target.tokenizer)))

    return await whole_answer(request, body(), names)
