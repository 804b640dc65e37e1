"""`specpair verify-exactness`: tests on a running deployment that speculation changes nothing."""

import asyncio
import importlib.util
import os
import secrets
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from command.connection import coordinator_at
from command.consoles import console_on
from command.failures import FAILED, WRONG_USE, CommandError, friendly
from command.flags.shared import DEFAULT_ADDRESS, AddressOption, JsonOption, NoColorOption
from command.generation.checked_text import checked_text
from specpair.errors import InvalidFieldError, SpecpairError
from specpair.flags import SPECULATION
from specpair.options import Rule, WorkAhead, check_range

if TYPE_CHECKING:  # they need scipy, which no other command needs
    from command.exactness.run import Wishes
    from specpair.exactness.plan import Settings
    from specpair.exactness.report import Report

DRAWS = 300
REPORT_WIDTH = 120
"""Width of the tables, in columns, if the output is not a terminal."""
MIN_DRAWS = 20
MAX_DRAWS = 10**6
ALPHA = 1e-3
CONCURRENCY = 16
"""A quarter of the sequences of a model service: a full draft refuses, and the target goes on alone."""
MAX_CONCURRENCY = 1024
MAX_RUN_SEED = 2**53 - 1
"""So that any JSON reader keeps it exactly."""

PromptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt",
        help="Text to continue, or for the target's encoder; may be given several times. Default: two short texts.",
    ),
]
RuleOption = Annotated[
    list[Rule] | None,
    typer.Option("--rule", help="Rule to test; may be given several times. Default: all.", rich_help_panel=SPECULATION),
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--num-speculative-tokens",
        help="Tokens proposed per round. Default: 3, or as many as the server allows.",
        rich_help_panel=SPECULATION,
    ),
]

TreeOption = Annotated[
    int | None,
    typer.Option(
        "--num-tree-tokens",
        help="Proposals are trees of so many tokens at most; 0 for chains. Default: the server's.",
        rich_help_panel=SPECULATION,
    ),
]
AheadOption = Annotated[
    WorkAhead | None,
    typer.Option(
        "--work-ahead",
        help="Whether the draft prepares proposals while the target verifies. With on, outputs are also compared with "
        "those without it. Default: the server's.",
        rich_help_panel=SPECULATION,
    ),
]


@friendly
def verify_exactness(
    prompt: PromptOption = None,
    rule: RuleOption = None,
    num_speculative_tokens: CountOption = None,
    draws: Annotated[
        int,
        typer.Option(
            "--draws", help="Outputs per prompt, option set and rule: four times as many detect half as much."
        ),
    ] = DRAWS,
    alpha: Annotated[
        float, typer.Option("--alpha", help="Probability that a run reports a difference where there is none.")
    ] = ALPHA,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Repeats an earlier run. Default: random; the report names it.")
    ] = None,
    num_tree_tokens: TreeOption = None,
    work_ahead: AheadOption = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Requests running at once.")] = CONCURRENCY,
    address: AddressOption = DEFAULT_ADDRESS,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Verify on a running deployment that speculation changes nothing but the speed.

    G-tests compare sampled outputs with speculation to outputs of the target alone, drawn with other seeds. They
    compare the joint distribution of the first tokens for every prompt and rule: with plain sampling, with a small
    top-k and with penalties. A test that finds no difference reports how large a difference it would have detected.

    Greedy outputs must be equal for every rule and number of proposed tokens. Outputs of the coupled rule must be
    equal for equal seeds. A repeated request must repeat its output; with --work-ahead on, so must the same request
    without it. Where rounding may decide between two tokens, a difference is reported as a near-tie; a deterministic
    server has none.

    Exits with status 0 if no difference was found, 1 if one was found, 2 if nothing could be tested, for example on a
    server that does not speculate.
    """
    try:
        _check_numbers(draws, alpha, seed, concurrency)
        _check_scipy()
        from command.exactness.run import Wishes

        wishes = Wishes(
            prompts=tuple(checked_text("--prompt", os.fsencode(text)) for text in prompt or ()) or None,
            num_speculative_tokens=num_speculative_tokens,
            rules=tuple(dict.fromkeys(rule or Rule)),
            draws=draws,
            seed=secrets.randbits(53) if seed is None else seed,
            work_ahead=work_ahead,
            num_tree_tokens=num_tree_tokens,
        )
        settings, report = asyncio.run(_run(address, wishes, alpha, concurrency, _progress(no_color)))
    except (CommandError, SpecpairError) as error:
        raise CommandError(str(error), WRONG_USE) from None
    _print(settings, report, is_json=json, is_plain=no_color)
    _exit(report)


def _exit(report: "Report") -> None:
    if not report.passed:
        raise typer.Exit(FAILED)
    if not report.tested:
        raise typer.Exit(WRONG_USE)


def _check_numbers(draws: int, alpha: float, seed: int | None, concurrency: int) -> None:
    check_range("--draws", draws, MIN_DRAWS, MAX_DRAWS)
    check_range("--concurrency", concurrency, 1, MAX_CONCURRENCY)
    if seed is not None:
        check_range("--seed", seed, 0, MAX_RUN_SEED)
    if not 0.0 < alpha < 1.0:
        raise InvalidFieldError("--alpha", f"is {alpha}; it must be above 0 and below 1")


def _check_scipy() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise CommandError("the statistics need scipy: pip install 'specpair[verify]'")


async def _run(
    address: str, wishes: "Wishes", alpha: float, concurrency: int, progress: Progress
) -> "tuple[Settings, Report]":
    from command.exactness.run import describe, settings_for, verify

    async with coordinator_at(address) as stub:
        pair = await describe(stub)
        settings = await settings_for(stub, pair, wishes)
        with progress:
            report = await verify(
                stub, pair, settings, alpha=alpha, concurrency=concurrency, show=partial(_show, progress)
            )
    return settings, report


def _progress(is_plain: bool) -> Progress:
    """Bars on standard error, if that is a terminal and may be painted."""
    console = console_on(is_error=True, is_plain=is_plain)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _show(progress: Progress, name: str, total: int) -> Callable[[], None]:
    return partial(progress.advance, progress.add_task(name, total=total))


def _print(settings: "Settings", report: "Report", *, is_json: bool, is_plain: bool) -> None:
    from command.exactness.report import json_report, print_report

    if is_json:
        typer.echo(json_report(report, settings))
    else:
        width = None if sys.stdout.isatty() else REPORT_WIDTH
        print_report(console_on(is_plain=is_plain, width=width), report, settings)
