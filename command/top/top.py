"""`specpair top`: the pair at work, in the terminal."""

import asyncio
import time
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from command.consoles import console_on
from command.failures import CommandError, friendly
from command.flags.access import current_access
from command.flags.shared import NoColorOption
from command.top.figures import Traffic, model_figures, state, traffic, uptime
from command.top.scrape import NOT_REACHED, Endpoint
from command.top.view import ModelColumn, top_view
from specpair.options import check_range

NONE = "none"
MAX_SECONDS = 3600.0


@friendly
def top(
    metrics: Annotated[
        str, typer.Option("--metrics", envvar="SPECPAIR_METRICS", help="URL of coordinator metrics.")
    ] = "http://127.0.0.1:8000/metrics",
    draft_metrics: Annotated[
        str,
        typer.Option("--draft-metrics", envvar="SPECPAIR_DRAFT_METRICS", help="URL of draft metrics; or `none`."),
    ] = "http://127.0.0.1:9051/metrics",
    target_metrics: Annotated[
        str,
        typer.Option("--target-metrics", envvar="SPECPAIR_TARGET_METRICS", help="URL of target metrics; or `none`."),
    ] = "http://127.0.0.1:9052/metrics",
    interval: Annotated[float, typer.Option("--interval", help="Seconds between updates.")] = 1.0,
    window: Annotated[float, typer.Option("--window", help="Seconds that the column `last` covers.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures since the start once, and exit.")] = False,
    no_color: NoColorOption = False,
) -> None:
    """Show current acceptance, throughput, latency and cache use; Ctrl-C exits.

    Reads the services' Prometheus metrics; the services may run on other machines. If the output is not a terminal,
    the figures are printed once.
    """
    check_range("--interval", interval, 0.1, MAX_SECONDS)
    check_range("--window", window, interval, MAX_SECONDS)
    access = current_access()
    coordinator = Endpoint(metrics, window, access)
    named = {"draft": draft_metrics, "target": target_metrics}
    models = {name: Endpoint(url, window, access) for name, url in named.items() if url != NONE}
    console = console_on(is_plain=no_color)
    if once or not console.is_terminal:
        asyncio.run(ask_all(coordinator, models))
        if coordinator.problem is not None:
            is_absent = coordinator.problem == NOT_REACHED
            hint = "; `specpair up` starts a coordinator, --metrics says where one is" if is_absent else ""
            raise CommandError(f"{coordinator.url}: {coordinator.problem}{hint}")
        return console.print(view(coordinator, models))
    try:
        asyncio.run(_watch(coordinator, models, interval, console))
    except KeyboardInterrupt:
        return


async def ask_all(coordinator: Endpoint, models: dict[str, Endpoint]) -> None:
    """Asks all endpoints at once."""
    await asyncio.gather(*(asyncio.to_thread(endpoint.ask) for endpoint in (coordinator, *models.values())))


def view(coordinator: Endpoint, models: dict[str, Endpoint]) -> RenderableType:
    """The tables to show now."""
    latest = coordinator.latest
    if latest is None:
        return Text(f"{coordinator.url}: {coordinator.problem}", "yellow")
    columns = [_model_column(name, endpoint) for name, endpoint in models.items()]
    shown = top_view(state(latest.exposition), _stretches(coordinator), columns)
    if coordinator.problem is None:
        return shown
    return Group(Text(f"{coordinator.url}: {coordinator.problem}; these are its last figures", "bold red"), shown)


async def _watch(coordinator: Endpoint, models: dict[str, Endpoint], interval: float, console: Console) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            begin = time.monotonic()
            await ask_all(coordinator, models)
            live.update(view(coordinator, models), refresh=True)
            await asyncio.sleep(max(interval - (time.monotonic() - begin), 0.0))


def _stretches(endpoint: Endpoint) -> list[Traffic]:
    """The window, if there are two scrapes to compare, and the time since the start."""
    now, before = endpoint.latest, endpoint.earliest
    assert now is not None
    always = traffic(now.exposition, uptime(now.exposition, now.clock))
    if before is None:
        return [always]
    return [traffic(now.exposition.since(before.exposition), now.clock - before.clock), always]


def _model_column(name: str, endpoint: Endpoint) -> ModelColumn:
    now, before = endpoint.latest, endpoint.earliest
    if now is None:
        return ModelColumn(name, None, endpoint.problem)
    if before is None:
        seconds = uptime(now.exposition, now.clock)
        return ModelColumn(name, model_figures(now.exposition, now.exposition, seconds), endpoint.problem)
    added = now.exposition.since(before.exposition)
    return ModelColumn(name, model_figures(now.exposition, added, now.clock - before.clock), endpoint.problem)
