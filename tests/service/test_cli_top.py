"""`specpair top` on what real services say after real requests."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from command.top.figures import BLOCK_STATES, model_figures, state, traffic
from command.top.scrape import Endpoint
from command.top.top import ask_all
from specpair.server.config import ServerConfig
from specpair.server.metrics_endpoint import metrics_endpoint
from tests.service.test_cli_chat import on_terminal
from tests.services import engine_config, running_pair
from tests.tiny_models import make_model
from tests.unit.command.top.test_top import COORDINATOR, answering

PROMPT = [5, 2, 7, 2, 11]


async def test_the_figures_are_those_of_the_requests(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target", seed=1, vocab_size=24)
    draft = make_model(tmp_path / "draft", seed=2, vocab_size=24)
    async with running_pair(engine_config(target), engine_config(draft)) as pair, AsyncExitStack() as stack:
        assert pair.draft is not None
        ports = {
            name: await stack.enter_async_context(
                metrics_endpoint(model.registry, ServerConfig(port=0, metrics_port=0))
            )
            for name, model in (("draft", pair.draft), ("target", pair.target))
        }
        models = {name: Endpoint(f"http://127.0.0.1:{port}/metrics", 60.0) for name, port in ports.items()}
        coordinator = Endpoint(f"http://{pair.http_address}/metrics", 60.0)
        await ask_all(coordinator, models)
        options = {"num_speculative_tokens": 3, "ignore_eos": True}
        generated = await asyncio.gather(*(pair.generate(PROMPT, 16, seed=i, **options) for i in range(4)))
        await ask_all(coordinator, models)
        now, before = coordinator.latest, coordinator.earliest
        assert now is not None and before is not None
        assert (coordinator.problem, models["draft"].problem, models["target"].problem) == (None, None, None)

        figures = traffic(now.exposition.since(before.exposition), 2.0)
        speculations = [each.summary.speculation for each in generated]
        accepted = sum(each.accepted_token_count for each in speculations)
        assert figures.acceptance_rate == accepted / sum(each.draft_token_count for each in speculations)
        rounds = sum(each.round_count for each in speculations)
        assert figures.tokens_per_round == pytest.approx(
            sum(e.tokens_per_round * e.round_count for e in speculations) / rounds
        )
        assert figures.tokens_per_second == 4 * 16 / 2.0
        assert figures.requests_by_outcome["finished"] == 4 and len(figures.acceptance_by_position) == 3
        assert all(quantiles.median for quantiles in figures.latencies.values())
        assert figures.round_times["draft"] and figures.round_times["verify"]
        assert state(now.exposition).is_up == {"draft": True, "target": True}

        for endpoint in models.values():
            assert endpoint.latest is not None
            said = endpoint.latest.exposition
            model = model_figures(said, said, 2.0)
            assert tuple(model.blocks) == BLOCK_STATES and sum(model.blocks.values()) > 0
            assert model.batch_sequences and model.forward_seconds and model.tokens_per_second


async def test_on_a_terminal_it_goes_on_until_ctrl_c() -> None:
    with answering(COORDINATOR) as url:
        flags = ["--metrics", url, "--draft-metrics", "none", "--target-metrics", "none", "--interval", "0.1"]
        async with on_terminal(sys.executable, "-m", "command", "top", *flags) as terminal:
            await terminal.wait_for("since start")
            await terminal.wait_for("last 0 s")
            await terminal.wait_for("last 0 s")
            await terminal.type("\x03")
            assert await terminal.status() == 0
