"""`specpair theory`: what speculation can gain, by calculation."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from command.consoles import console_on
from command.failures import WRONG_USE, CommandError, friendly
from command.flags.shared import JsonOption, NoColorOption
from command.theory.inputs import parse_acceptance, parse_pair, read_text
from command.theory.report import (
    AcceptanceReport,
    SpeedupReport,
    acceptance_json,
    example_table,
    print_acceptance,
    print_speedup,
    speedup_json,
    table_1,
    table_4,
)
from specpair.errors import InvalidFieldError
from specpair.flags import SPECULATION
from specpair.options import check_range
from specpair.theory.points import Point, read_points, typical
from specpair.theory.speedup import MAX_NUM_SPECULATIVE_TOKENS

REPORT_WIDTH = 120
"""Width of the tables, in columns, if the output is not a terminal."""
SHOWN = 12
PLOTTED = (1, 2, 3, 5, 8)
FORMATS = (".svg", ".png", ".pdf")

app = typer.Typer(
    no_args_is_help=True, help="Calculate what speculation can gain: acceptance, speed, the best K, the bound."
)

CostRatioOption = Annotated[
    float,
    typer.Option("--cost-ratio", help="Time of a draft step over that of a target step: c of Leviathan et al."),
]
OverheadOption = Annotated[
    float,
    typer.Option(
        "--overhead",
        help="Time of a round with proposals beyond its draft steps and one target step, such as network time, in "
        "units of a target step.",
    ),
]
MaxShownOption = Annotated[
    int, typer.Option("--max-num-speculative-tokens", help="Largest K shown.", rich_help_panel=SPECULATION)
]


PointsOption = Annotated[
    Path | None,
    typer.Option(
        "--points",
        help='Measured points: a JSON list, or an object with one under "points", of objects with label, '
        "num_speculative_tokens, acceptance, cost_ratio, predicted and measured.",
    ),
]


@app.command("speedup")
@friendly
def show_speedup(
    acceptance: Annotated[
        str,
        typer.Option(
            "--acceptance",
            help="Probability that a draft token is accepted, 0 to 1. Several values, separated by commas, are a "
            "measured profile: of the first, second, ... token of a proposal, given that all before it were accepted.",
        ),
    ],
    cost_ratio: CostRatioOption,
    operations_ratio: Annotated[
        float,
        typer.Option("--operations-ratio", help="Arithmetic operations of a draft step over those of a target step."),
    ] = 0.0,
    overhead: OverheadOption = 0.0,
    max_num_speculative_tokens: MaxShownOption = SHOWN,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Show what each K gives compared with the target alone: tokens per round, speed, operations and reads.

    The best K is marked. The oracle knows before each round how many tokens will be accepted: no choice of K that
    verifies its proposals can be faster.

    Example: a target step takes 50 ms, a draft step 5 ms, and four of five draft tokens are accepted:
    specpair theory speedup --acceptance 0.8 --cost-ratio 0.1

    Source: Leviathan et al. 2023, Equation 1, Theorems 3.8 and 3.11, sections 3.4 and 3.5.
    """
    check_range("--max-num-speculative-tokens", max_num_speculative_tokens, 0, MAX_NUM_SPECULATIVE_TOKENS)
    report = SpeedupReport(
        acceptance=parse_acceptance(acceptance),
        cost_ratio=cost_ratio,
        operations_ratio=operations_ratio,
        overhead=overhead,
        longest=max_num_speculative_tokens,
    )
    if json:
        typer.echo(speedup_json(report))
    else:
        print_speedup(_console(no_color), report)


@app.command("acceptance")
@friendly
def show_acceptance(
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="Probabilities of the target: numbers separated by commas, a JSON list, a JSON object from token to "
            "probability, or a .json file that holds one of these.",
        ),
    ],
    draft: Annotated[str, typer.Option("--draft", help="Probabilities of the draft, in the same form and order.")],
    lenience: Annotated[
        float | None,
        typer.Option("--lenience", help="Show the token rule with this lenience too (0 to 1; below 1 is lossy)."),
    ] = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> None:
    """Show how often a draft token is accepted, from the distributions of target and draft.

    For every rule, with the distance of the distributions. For a small vocabulary also what happens to each token: the
    probability that it is accepted if drafted, and what is drawn after a rejection.

    specpair theory acceptance --target 0.5,0.1,0.4 --draft 0.2,0.5,0.3

    Source: Leviathan et al. 2023, section 3.2, appendices A.2 and A.5; for the coupled rule Daliri et al. 2024.
    """
    report = AcceptanceReport(*parse_pair(target, draft), lenience)
    if json:
        typer.echo(acceptance_json(report))
    else:
        print_acceptance(_console(no_color), report)


@app.command("published")
@friendly
def show_published(
    wants_table_1: Annotated[
        bool, typer.Option("--table-1", help="Table 1 of Leviathan et al.: operations and speed.")
    ] = False,
    wants_table_4: Annotated[
        bool, typer.Option("--table-4", help="Table 4 of Leviathan et al.: expected walltime improvement (EXP).")
    ] = False,
    wants_example: Annotated[
        bool, typer.Option("--example", help="The worked example of Shekhar's introduction: 50 ms, 5 ms, K = 4.")
    ] = False,
    no_color: NoColorOption = False,
) -> None:
    """Reproduce published figures from their inputs, with the printed value beside ours. Default: all of them.

    If a printed value does not follow from the printed inputs, the table says so, and whether the rounding of the
    inputs can explain it.
    """
    console = _console(no_color)
    wanted = [(wants_table_1, table_1), (wants_table_4, table_4), (wants_example, example_table)]
    for is_wanted, make_table in wanted:
        if is_wanted or not any(chosen for chosen, _ in wanted):
            console.print(make_table())


@app.command("plot")
@friendly
def plot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Image file to write: .svg, .png or .pdf.")],
    acceptance: Annotated[
        list[str] | None,
        typer.Option("--acceptance", help="Acceptance of one curve, as for `speedup`; may be given several times."),
    ] = None,
    cost_ratio: Annotated[
        float | None,
        typer.Option("--cost-ratio", help="Time of a draft step over that of a target step. Default: from --points."),
    ] = None,
    overhead: OverheadOption = 0.0,
    points: PointsOption = None,
    over: Annotated[
        Literal["num-speculative-tokens", "acceptance"], typer.Option("--over", help="Horizontal axis.")
    ] = "num-speculative-tokens",
    num_speculative_tokens: Annotated[
        list[int] | None,
        typer.Option(
            "--num-speculative-tokens",
            help="K of a curve over acceptance; may be given several times. Default: those of the points, or "
            "1 2 3 5 8.",
            rich_help_panel=SPECULATION,
        ),
    ] = None,
    max_num_speculative_tokens: MaxShownOption = SHOWN,
) -> None:
    """Plot predicted speedups over K or over acceptance, with measured points on top.

    Points with the same label share a curve, computed from the medians of their acceptances and cost ratios. Each
    point shows its measured speedup; a dotted line leads to the prediction from its own figures. --overhead applies to
    the curves of --acceptance, and to all curves over acceptance.

    specpair theory plot speedup.svg --acceptance 0.6 --acceptance 0.8 --cost-ratio 0.05
    """
    _check_plot(file)
    check_range("--max-num-speculative-tokens", max_num_speculative_tokens, 1, MAX_NUM_SPECULATIVE_TOKENS)
    measured = [] if points is None else read_points(read_text(points))
    from specpair.theory.plot import Curve, plot_over_acceptance, plot_over_num_speculative_tokens, save, series_curves

    if over == "acceptance":
        ks = num_speculative_tokens or _proposing(measured) or PLOTTED
        figure = plot_over_acceptance(ks, _cost_ratio(cost_ratio, measured), measured, overhead=overhead)
    else:
        curves = series_curves(measured)
        for text in acceptance or ():
            chances = parse_acceptance(text)
            label = "" if isinstance(chances, float) else f"a = {text}"
            curves.append(Curve(label, chances, _cost_ratio(cost_ratio, measured), overhead))
        if not curves:
            raise InvalidFieldError("--acceptance", "is needed for a curve, unless there are --points")
        figure = plot_over_num_speculative_tokens(curves, measured, longest=max_num_speculative_tokens)
    try:
        save(figure, file)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None


def _check_plot(file: Path) -> None:
    if file.suffix not in FORMATS:
        raise InvalidFieldError("FILE", f"is {str(file)!r}; it must end in one of {' '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("plots need matplotlib: pip install 'specpair[plot]'", WRONG_USE)


def _cost_ratio(given: float | None, measured: Sequence[Point]) -> float:
    if given is not None:
        return given
    if not measured:
        raise InvalidFieldError("--cost-ratio", "is needed for a curve, unless there are --points")
    return typical(measured)[1]


def _proposing(measured: Sequence[Point]) -> list[int]:
    return sorted({point.num_speculative_tokens for point in measured} - {0})


def _console(is_plain: bool) -> Console:
    width = None if sys.stdout.isatty() else REPORT_WIDTH
    return console_on(is_plain=is_plain, width=width)
