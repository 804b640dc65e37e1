"""`specpair theory`: what it prints is what the library calculates, and what is wrong is one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command.main import app
from specpair.theory.acceptance import coupled_acceptance, token_acceptance
from specpair.theory.plot import Curve, plot_over_acceptance, plot_over_num_speculative_tokens, save, series_curves
from specpair.theory.points import points_document, read_points
from specpair.theory.speedup import expected_tokens, operations_factor, optimum, oracle_walltime_factor, walltime_factor

TARGET = '{"everyday": 0.5, "today": 0.1, "tomorrow": 0.4}'
DRAFT = '{"everyday": 0.2, "today": 0.5, "tomorrow": 0.3}'
POINT = {
    "label": "T = 0",
    "num_speculative_tokens": 3,
    "acceptance": 0.7,
    "cost_ratio": 0.1,
    "predicted": 1.9,
    "measured": 1.8,
}


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = CliRunner().invoke(app, ["theory", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def printed(*arguments: str) -> str:
    """Standard output of a run that succeeds."""
    status, stdout, stderr = run(*arguments)
    assert (status, stderr) == (0, "")
    return stdout


def cells(text: str) -> list[list[str]]:
    """The rows of all tables, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["speedup", "acceptance", "published", "plot"]),
        (["speedup"], ["--acceptance", "--cost-ratio", "--operations-ratio", "--overhead", "--json", "3.8", "oracle"]),
        (["acceptance"], ["--target", "--draft", "--lenience", "--json"]),
        (["published"], ["--table-1", "--table-4", "--example"]),
        (["plot"], ["FILE", "--points", "--over", "predicted", "measured", "median"]),
    ],
)
def test_help_names_the_options(arguments: list[str], expected: list[str]) -> None:
    stdout = printed(*arguments, "--help")
    assert [word for word in expected if word not in stdout] == []


def test_speedup_is_a_table_over_k_with_best_and_bound() -> None:
    stdout = printed("speedup", "--acceptance", "0.8", "--cost-ratio", "0.1", "--operations-ratio", "0.2")
    *rows, oracle = cells(stdout)
    assert [row[0] for row in rows] == [str(k) for k in range(13)]
    for k, row in enumerate(rows):
        figures = (expected_tokens(0.8, k), walltime_factor(0.8, k, 0.1), operations_factor(0.8, k, 0.2))
        assert row[1:4] == [f"{figure:.3f}" for figure in figures]
        assert row[5] == ("best" if k == 6 else "")
    assert oracle == ["oracle", "5.000", f"{oracle_walltime_factor(0.8, 0.1):.3f}", "", "", "bound"]
    assert "best K = 6: 2.47 times the speed of the target alone" in stdout
    assert "could add at most 45%" in stdout


@pytest.mark.parametrize(
    ("arguments", "ks", "line"),
    [
        (["0.9", "0.001"], ["0", "1", "2", "44", "oracle"], "best K = 44: "),
        (
            ["0.1", "0.2"],
            ["0", "1", "2", "oracle"],
            "no K above 0 pays: the target alone is fastest; choosing K for each",
        ),
        (
            ["1", "0"],
            ["0", "1", "2", "64", "oracle"],
            "best K = 64: 65.00 times the speed of the target alone; longer",
        ),
        (
            ["0.9,0.8,0.7", "0.1"],
            ["0", "1", "2", "3"],
            "best K = 3: 2.40 times the speed of the target alone; longer prop",
        ),
    ],
)
def test_what_lies_beyond_the_table_is_said(arguments: list[str], ks: list[str], line: str) -> None:
    acceptance, cost_ratio = arguments
    stdout = printed(
        "speedup", "--acceptance", acceptance, "--cost-ratio", cost_ratio, "--max-num-speculative-tokens", "2"
    )
    assert [row[0] for row in cells(stdout)] == ks
    assert line in stdout


def test_speedup_as_json() -> None:
    document = json.loads(
        printed("speedup", "--acceptance", "0.9, 0.5", "--cost-ratio", "0.1", "--overhead", "0.2", "--json")
    )
    assert (document["acceptance"], document["overhead"], document["oracle"]) == ([0.9, 0.5], 0.2, None)
    assert [row["walltime_factor"] for row in document["rows"]] == [
        walltime_factor([0.9, 0.5], k, 0.1, 0.2) for k in range(3)
    ]
    assert document["optimum"] == optimum([0.9, 0.5], 0.1, 0.2)._asdict()
    endless = json.loads(printed("speedup", "--acceptance", "1", "--cost-ratio", "0", "--json"))
    assert endless["oracle"] == {"expected_tokens": None, "walltime_factor": None}


def test_acceptance_shows_what_becomes_of_each_token() -> None:
    stdout = printed("acceptance", "--target", TARGET, "--draft", DRAFT, "--lenience", "0.5")
    rows = cells(stdout)
    assert rows[:3] == [
        ["everyday", "0.5000", "0.2000", "1.0000", "0.7500"],
        ["today", "0.1000", "0.5000", "0.2000", "0.0000"],
        ["tomorrow", "0.4000", "0.3000", "1.0000", "0.2500"],
    ]
    figures = {meaning.split(",")[0].split(":")[0]: value for meaning, value in rows[3:]}
    coupled = coupled_acceptance([0.5, 0.1, 0.4], [0.2, 0.5, 0.3])
    assert figures["distance between the distributions"] == "0.4000"
    assert figures["token rule (and first token of a block)"] == "0.6000"
    assert figures["token rule with lenience 0.5"] == "0.7000"
    assert figures["coupled rule"] == f"{coupled:.4f}"
    assert figures["its lower bound for this distance"] == "0.4286"
    assert figures["greedy draft"] == "0.1000"


@pytest.mark.parametrize("form", ["0.5,0.1,0.4", "0.5 0.1 0.4", "[0.5, 0.1, 0.4]", "FILE"])
def test_a_distribution_comes_in_several_forms(form: str, tmp_path: Path) -> None:
    if form == "FILE":
        form = str(tmp_path / "row.json")
        Path(form).write_text("[0.5, 0.1, 0.4]\n")
    document = json.loads(printed("acceptance", "--target", form, "--draft", "0.2,0.5,0.3", "--json"))
    assert document["token"] == token_acceptance([0.5, 0.1, 0.4], [0.2, 0.5, 0.3])
    assert document["coupled"] == coupled_acceptance([0.5, 0.1, 0.4], [0.2, 0.5, 0.3])
    assert "token_lenient" not in document


def test_named_tokens_are_matched_by_name() -> None:
    document = json.loads(
        printed("acceptance", "--target", '{"a": 0.25, "b": 0.75}', "--draft", '{"c": 0.5, "b": 0.5}', "--json")
    )
    assert (document["token"], document["total_variation"]) == (0.5, 0.5)


def test_many_tokens_are_not_listed() -> None:
    row = ",".join(["0.04"] * 25)
    assert "drawn after a rejection" not in printed("acceptance", "--target", row, "--draft", row)


def test_published_prints_what_it_reproduces_and_what_not() -> None:
    stdout = printed("published")
    rows = cells(stdout)
    assert len(rows) == 6 + 12 + 3
    assert rows[0] == ["0.6", "2", "1.53", "1.53", "1.96", "1.96", "equal"]
    assert rows[5][-2:] == ["6.86", "equal"]
    assert rows[6] == ["EnDe", "T5-small", "0", "7", "0.75", "0.02", "3.2", "3.157", "3.02 to 3.30", "3.4", "equal"]
    missed = [(*row[:3], row[6], row[7]) for row in rows if row[-1] == "within rounding"]
    assert missed == [
        ("EnDe", "T5-base", "1", "2.4", "2.347"),
        ("EnDe", "T5-large", "1", "2.0", "1.934"),
        ("CNNDM", "T5-large", "1", "1.6", "1.541"),
    ]
    assert "3 of 12 EXP values do not follow from the printed inputs" in stdout
    assert rows[-2] == ["average", "3", "4", "2.86", "2.86", "3.5", "10.0", "equal"]


@pytest.mark.parametrize(("option", "count"), [("--table-1", 6), ("--table-4", 12), ("--example", 3)])
def test_one_published_table_alone(option: str, count: int) -> None:
    assert len(cells(printed("published", option))) == count


def points_file(folder: Path, *points: dict[str, Any]) -> Path:
    path = folder / "points.json"
    path.write_text(json.dumps({"machine": {}, "points": points}))
    return path


def test_plot_writes_what_the_library_draws(tmp_path: Path) -> None:
    """The same picture byte for byte, from the same curves and points."""
    others = {"num_speculative_tokens": 5, "measured": 1.7}, {"num_speculative_tokens": 0, "measured": 1.0}
    path = points_file(tmp_path, POINT, *(POINT | change for change in others))
    points = read_points(path.read_text())
    drawn, expected = tmp_path / "drawn.svg", tmp_path / "expected.svg"
    options = ("--points", str(path), "--max-num-speculative-tokens", "6")

    assert (
        printed("plot", str(drawn), *options, "--acceptance", "0.9", "--acceptance", "0.9,0.5", "--overhead", "0.1")
        == ""
    )
    curves = [*series_curves(points), Curve("", 0.9, 0.1, 0.1), Curve("a = 0.9,0.5", [0.9, 0.5], 0.1, 0.1)]
    save(plot_over_num_speculative_tokens(curves, points, longest=6), expected)
    assert drawn.read_bytes() == expected.read_bytes()

    assert printed("plot", str(drawn), *options, "--over", "acceptance") == ""
    save(plot_over_acceptance([3, 5], 0.1, points), expected)
    assert drawn.read_bytes() == expected.read_bytes()

    assert printed("plot", str(drawn), "--over", "acceptance", "--cost-ratio", "0.3", "--overhead", "0.2") == ""
    save(plot_over_acceptance([1, 2, 3, 5, 8], 0.3, [], overhead=0.2), expected)
    assert drawn.read_bytes() == expected.read_bytes()

    assert printed("plot", str(drawn), *options, "--over", "acceptance", "--num-speculative-tokens", "7") == ""
    save(plot_over_acceptance([7], 0.1, points), expected)
    assert drawn.read_bytes() == expected.read_bytes()


def test_points_of_a_bench_are_plotted(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(points_document(read_points(json.dumps([POINT])))))
    assert printed("plot", str(tmp_path / "bench.png"), "--points", str(path)) == ""
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["speedup", "--acceptance", "1.5", "--cost-ratio", "0.1"],
            "--acceptance: is 1.5; it must be between 0.0 and 1.0",
        ),
        (["speedup", "--acceptance", "high", "--cost-ratio", "0.1"], "--acceptance: is 'high'; it must be numbers"),
        (["speedup", "--acceptance", "", "--cost-ratio", "0.1"], "--acceptance: is ''"),
        (["speedup", "--acceptance", "0.5,2", "--cost-ratio", "0.1"], "--acceptance[1]: is 2.0"),
        (["speedup", "--acceptance", "0.5", "--cost-ratio", "-1"], "--cost-ratio: is -1.0"),
        (["speedup", "--acceptance", "0.5", "--cost-ratio", "0", "--overhead", "nan"], "--overhead: is nan"),
        (
            ["speedup", "--acceptance", "0.5", "--cost-ratio", "0", "--max-num-speculative-tokens", "-1"],
            "--max-num-speculative-tokens: is -1",
        ),
        (["acceptance", "--target", "1", "--draft", "0.5,0.5"], "--draft: has 2 probabilities, but the target has 1"),
        (["acceptance", "--target", "0.5,0.4", "--draft", "1"], "--target: sums to 0.9; it must sum to 1"),
        (["acceptance", "--target", "[1", "--draft", "1"], "--target: is not valid JSON"),
        (["acceptance", "--target", '{"a": "b"}', "--draft", "1"], "--target[a]: is not a number"),
        (
            ["acceptance", "--target", '{"a": 1}', "--draft", "1"],
            "--draft: must name its tokens if and only if the target",
        ),
        (["acceptance", "--target", "1", "--draft", "missing.json"], "missing.json cannot be read: No such file"),
        (["acceptance", "--target", "1", "--draft", "1", "--lenience", "0"], "--lenience: is 0; it must be above 0"),
        (["plot", "x.gif", "--acceptance", "0.5", "--cost-ratio", "0"], "FILE: is 'x.gif'; it must end in one of .svg"),
        (["plot", "x.svg"], "--acceptance: is needed for a curve, unless there are --points"),
        (["plot", "x.svg", "--acceptance", "0.5"], "--cost-ratio: is needed for a curve, unless there are --points"),
        (["plot", "x.svg", "--over", "acceptance"], "--cost-ratio: is needed for a curve"),
        (["plot", "x.svg", "--points", "missing.json"], "missing.json cannot be read: No such file"),
    ],
)
def test_a_wrong_value_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    status, stdout, stderr = run(*arguments)
    assert (status, stdout) == (2, "")
    assert stderr.startswith(f"specpair: {message}") and stderr.count("\n") == 1


def test_a_wrong_point_is_named(tmp_path: Path) -> None:
    path = points_file(tmp_path, POINT, POINT | {"measured": -1})
    status, _, stderr = run("plot", str(tmp_path / "x.svg"), "--points", str(path))
    assert status == 2 and stderr.startswith("specpair: points[1].measured: is -1")
    path.write_bytes(b"\xff")
    assert run("plot", str(tmp_path / "x.svg"), "--points", str(path))[2] == f"specpair: {path} is not UTF-8 text\n"


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "x.svg"
    status, _, stderr = run("plot", str(missing), "--acceptance", "0.5", "--cost-ratio", "0")
    assert (status, stderr) == (1, f"specpair: {missing} cannot be written: No such file or directory\n")


def test_missing_matplotlib_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "specpair: plots need matplotlib: pip install 'specpair[plot]'\n"
    assert run("plot", "x.svg", "--acceptance", "0.5", "--cost-ratio", "0") == (2, "", message)


def test_only_plots_load_matplotlib() -> None:
    script = (
        "import sys; from command.main import app; "
        "app(['theory', 'speedup', '--acceptance', '0.5', '--cost-ratio', '0', '--json'], standalone_mode=False); "
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.endswith("}\n[]\n") and done.stderr == ""
