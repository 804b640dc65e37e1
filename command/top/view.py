"""The figures of `specpair top` as tables."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from command.top.figures import LATENCIES, PARTS, ModelFigures, Quantiles, State, Traffic

BAR_WIDTH = 24
NOTHING = "-"
ROUNDS = ("draft", "plain", "fallback")
AHEAD = ("hit", "late", "miss", "plain")
OUTCOMES = ("finished", "failed", "cancelled")


class ModelColumn(NamedTuple):
    """A model service; without figures, the reason."""

    name: str
    figures: ModelFigures | None
    problem: str | None


def top_view(state: State, stretches: Sequence[Traffic], models: Sequence[ModelColumn]) -> RenderableType:
    """All tables. `stretches` begins with the latest and ends with the time since the start."""
    return Group(
        state_line(state),
        "",
        traffic_table(state, stretches),
        *position_table(stretches[0]),
        *model_table(models),
    )


def state_line(state: State) -> Text:
    line = Text()
    for name, is_up in state.is_up.items():
        word, style = ("unknown", "yellow") if is_up is None else ("up", "green") if is_up else ("down", "bold red")
        instances = state.instances[name]
        if instances.known > 1:
            word = f"{instances.up} of {instances.known} up"
            style = "yellow" if 0 < instances.up < instances.known else style
        line.append(f"{name} ").append(word, style).append(" · ")
    return line.append(f"{state.requests_running:.0f} requests running")


def traffic_table(state: State, stretches: Sequence[Traffic]) -> Table:
    table = Table("", *(_stretch_name(stretch, stretches) for stretch in stretches), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"

    def row(label: str, *cells: str) -> None:
        table.add_row(label, *cells)

    row("acceptance rate", *(_percent(stretch.acceptance_rate) for stretch in stretches))
    row("tokens per round", *(_number(stretch.tokens_per_round, 2) for stretch in stretches))
    row("rounds draft / plain / fallback", *(_counts(stretch.rounds_by_kind, ROUNDS) for stretch in stretches))
    row("worked ahead hit / late / miss / plain", *(_counts(stretch.ahead_by_outcome, AHEAD) for stretch in stretches))
    row("tokens/s", *(_number(stretch.tokens_per_second, 1) for stretch in stretches))
    row("prompt tokens/s", *(_number(stretch.prompt_tokens_per_second, 1) for stretch in stretches))
    row("requests finished / failed / cancelled", *(_counts(each.requests_by_outcome, OUTCOMES) for each in stretches))
    for label in LATENCIES:
        row(f"{label}, median / 95 %", *(_quantiles(stretch.latencies[label]) for stretch in stretches))
    for part in PARTS:
        row(f"{part} per round", *(_time(stretch.round_times[part]) for stretch in stretches))
    speedup = f"{_number(state.speedup, 2)} ({_number(state.predicted_speedup, 2)})"
    row("speedup, measured (predicted)", speedup, *("" for _ in stretches[1:]))
    row("acceptance that pays", _pays_from(state.break_even), *("" for _ in stretches[1:]))
    best = f"{_number(state.best_length, 0)} ({_number(state.expected_gain, 2)})"
    row("best K now (expected gain)", best, *("" for _ in stretches[1:]))
    return table


def position_table(traffic: Traffic) -> list[RenderableType]:
    """A bar for each position of a proposal; nothing without proposals."""
    if not traffic.acceptance_by_position:
        return []
    table = Table("position", "accepted", "", box=None, pad_edge=False)
    for position, rate in enumerate(traffic.acceptance_by_position, 1):
        filled = round((rate or 0.0) * BAR_WIDTH)
        bar = Text("█" * filled, "green").append("░" * (BAR_WIDTH - filled), "dim")
        table.add_row(str(position), _percent(rate), bar)
    return ["", table]


def model_table(models: Sequence[ModelColumn]) -> list[RenderableType]:
    """A column for each model service; nothing without any."""
    if not models:
        return []
    table = Table("", *(model.name for model in models), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("metrics", *(Text(model.problem, "yellow") if model.problem else "ok" for model in models))
    figures = [model.figures for model in models]
    table.add_row("cache used / shared / kept / free", *(_blocks(each) for each in figures))
    table.add_row("blocks evicted", *(_number(each and each.evictions, 0) for each in figures))
    table.add_row("sequences open", *(_number(each and each.sequences_open, 0) for each in figures))
    table.add_row("sequences per pass", *(_number(each and each.batch_sequences, 1) for each in figures))
    table.add_row("time per pass", *(_time(each and each.forward_seconds) for each in figures))
    table.add_row("time in queue", *(_time(each and each.queue_seconds) for each in figures))
    table.add_row("tokens/s fed", *(_number(each and each.tokens_per_second, 0) for each in figures))
    if any(each is not None and each.guessed for each in figures):
        table.add_row("tokens guessed (right)", *(_guesses(each) for each in figures))
    return ["", table]


def _stretch_name(stretch: Traffic, stretches: Sequence[Traffic]) -> str:
    return "since start" if stretch is stretches[-1] else f"last {stretch.seconds:.0f} s"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def _pays_from(acceptance: float | None) -> str:
    """No acceptance is above 1."""
    return "none" if acceptance is not None and acceptance > 1.0 else _percent(acceptance)


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _quantiles(quantiles: Quantiles) -> str:
    return f"{_time(quantiles.median)} / {_time(quantiles.most)}"


def _counts(counts: dict[str, float], names: Sequence[str]) -> str:
    return " / ".join(f"{counts.get(name, 0):.0f}" for name in names)


def _guesses(figures: ModelFigures | None) -> str:
    return f"{figures.guessed:.0f} ({figures.guesses_right:.0f})" if figures and figures.guessed else ""


def _blocks(figures: ModelFigures | None) -> str:
    if figures is None or not figures.blocks:
        return NOTHING
    return " / ".join(f"{count:.0f}" for count in figures.blocks.values())
