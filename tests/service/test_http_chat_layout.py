"""How a conversation is laid out, over HTTP and gRPC: continued messages, and variables of the template."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from specpair.v1 import coordinator_service_pb2 as pb
from tests.http_service import BUNDLED
from tests.services import RunningPair, engine_config, running_pair

TEMPLATE = (
    "{% for m in messages %}# {{ m.role }}: {{ m.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}# assistant:{% if enable_thinking is false %} NO{% endif %}{% endif %}"
)
USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "def read_lines(\n"}
SAMPLING: dict[str, Any] = {"seed": 3, "rule": "coupled", "max_tokens": 12}
LAYOUTS: list[tuple[dict[str, Any], str]] = [
    ({"messages": [USER]}, "# user: Hi\n# assistant:"),
    ({"messages": [USER], "add_generation_prompt": False}, "# user: Hi\n"),
    ({"messages": [USER, ASSISTANT], "continue_final_message": True}, "# user: Hi\n# assistant: def read_lines("),
    ({"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}, "# user: Hi\n# assistant: NO"),
]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "cannot be combined"),
    ({"continue_final_message": True}, "continue_final_message", "last message of the assistant"),
    ({"messages": [], "continue_final_message": True}, "messages", "between 1 and"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "sets messages"),
    ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs", "sets bos_token"),
    ({"chat_template_kwargs": {"x": "y" * 20_000}}, "chat_template_kwargs", "between 0 and 16384"),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs", "dictionary"),
    ({"chat_template_kwargs": {"x": "\ud800"}}, "chat_template_kwargs", "surrogate"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled target with a template that knows thinking, as Qwen's does."""
    folder = tmp_path_factory.mktemp("layout") / "target"
    shutil.copytree(BUNDLED / "target", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
async def pair(folder: Path) -> AsyncIterator[RunningPair]:
    async with running_pair(engine_config(folder, block_size=16), num_speculative_tokens=0) as pair:
        yield pair
        await pair.check_clean()


@pytest.mark.parametrize(("layout", "text"), LAYOUTS)
async def test_an_answer_goes_on_after_the_text_that_is_asked_for(
    client: httpx.AsyncClient, layout: dict[str, Any], text: str
) -> None:
    answer = await client.post("/v1/chat/completions", json={**layout, **SAMPLING})
    assert answer.status_code == 200, answer.text
    expected = (await client.post("/v1/completions", json={"prompt": text, **SAMPLING})).json()
    assert answer.json()["choices"][0]["message"]["content"] == expected["choices"][0]["text"]
    assert answer.json()["usage"]["total_tokens"] == expected["usage"]["total_tokens"]


@pytest.mark.parametrize(("changes", "parameter", "words"), REFUSED)
async def test_refusals_name_the_parameter(
    client: httpx.AsyncClient, changes: dict[str, Any], parameter: str, words: str
) -> None:
    body = json.dumps({"messages": [USER], "max_tokens": 2, **changes})
    headers = {"content-type": "application/json"}
    answer = await client.post("/v1/chat/completions", content=body, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, parameter)
    assert words in error["message"] and len(error["message"]) < 500


@pytest.mark.parametrize(
    ("chat", "words"),
    [
        ({"continue_final_message": True}, "chat.continue_final_message: needs a last message of the assistant"),
        ({"chat_template_kwargs": '{"eos_token": ""}'}, "chat.chat_template_kwargs: sets eos_token"),
        ({"chat_template_kwargs": '"' + "x" * 20_000 + '"'}, "chat.chat_template_kwargs length: is 20002"),
        ({"chat_template_kwargs": "[" * 16_000}, "chat.chat_template_kwargs: is not JSON"),
    ],
)
async def test_grpc_refuses_the_same(pair: RunningPair, chat: dict[str, Any], words: str) -> None:
    request = pb.GenerateTokensRequest(chat={"messages": [USER], **chat}, max_tokens=2)  # type: ignore[arg-type]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pair.coordinator.GenerateTokens(request).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith(words)


async def test_grpc_lays_out_the_same(pair: RunningPair) -> None:
    chat = {"messages": [USER], "chat_template_kwargs": '{"enable_thinking": false}'}
    texts = []
    for prompt in ({"chat": chat}, {"text": "# user: Hi\n# assistant: NO"}):
        request = pb.GenerateTokensRequest(**prompt, max_tokens=8, sampling={"seed": 1}, echo=True)  # type: ignore[arg-type]
        texts.append("".join([answer.text async for answer in pair.coordinator.GenerateTokens(request)]))
    assert texts[0] == texts[1]
