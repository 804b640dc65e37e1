"""`--chat-template`: a file in place of the template of the target's model."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command.main import app
from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from specpair.errors import InvalidFieldError
from specpair.server.config import ServerConfig
from tests.http_service import BUNDLED, http_client, running_bundled_pair

TEMPLATE = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "own.jinja"
    path.write_text(TEMPLATE)
    return path


async def test_conversations_are_laid_out_by_the_file(template: Path) -> None:
    assert (BUNDLED / "target" / "chat_template.jinja").exists(), "there is something to replace"
    async with running_bundled_pair(chat_template=str(template)) as pair, http_client(pair) as client:
        tokens = (await client.post("/tokenize", json={"messages": MESSAGES})).json()["tokens"]
        text = (await client.post("/detokenize", json={"tokens": tokens})).json()["prompt"]
        assert text == "<|endoftext|><user>Hi"
        answer = await client.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 2})
        assert answer.json()["usage"]["prompt_tokens"] == len(tokens)


async def test_a_target_that_is_replaced_keeps_the_file(template: Path) -> None:
    """The model's own files are compared, and they are the same."""
    async with running_bundled_pair(chat_template=str(template)) as pair, http_client(pair) as client:
        before = (await client.post("/tokenize", json={"messages": MESSAGES})).json()
        (link,) = pair.front_end.serving.pair.target.links.values()
        link.want_check()
        async with asyncio.timeout(20):
            while not link.is_there:
                await asyncio.sleep(0.01)
        assert (await client.post("/tokenize", json={"messages": MESSAGES})).json() == before


async def test_a_file_that_cannot_be_used_ends_the_start_before_anything_is_reached(tmp_path: Path) -> None:
    config = CoordinatorConfig(
        server=ServerConfig(port=0), target_addresses=("127.0.0.1:1",), chat_template=str(tmp_path / "none")
    )
    async with asyncio.timeout(5):
        with pytest.raises(InvalidFieldError, match=r"--chat-template: .*none cannot be read: No such file"):
            async with connect_pair(config):
                pass


@pytest.mark.parametrize("command", [("up",), ("serve", "coordinator", "--port", "0", "--http-port", "0")])
def test_the_commands_say_so_in_one_line(command: tuple[str, ...], template: Path) -> None:
    template.write_text("{% if %}")
    result = CliRunner().invoke(app, [*command, "--chat-template", str(template)])
    assert result.exit_code in (1, 2)
    assert f"--chat-template: {template}: the chat template cannot be read: line 1" in result.output
