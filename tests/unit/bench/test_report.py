"""How results are shown and kept."""

import json
from pathlib import Path

import pytest

from bench import report
from bench.options import BenchOptions
from bench.ratios import Estimate
from bench.report import Report, Section, Table, busy_note, rich_table, shown_as
from specpair.theory.points import Point, read_points

OPTIONS = BenchOptions(target="/somewhere/target", draft="/somewhere/draft", label="tiny", note="random weights")
POINT = Point(
    label="T = 0", num_speculative_tokens=3, acceptance=0.5, cost_ratio=0.1, predicted=1.4423076923, measured=1.3
)


def section() -> Section:
    estimate = Estimate(value=1.2345, low=1.0, high=1.5)
    rows = [{"case": "one", "speed": estimate}, {"case": "other", "speed": None}]
    return Section(
        name="demo",
        tables=[Table(title="demo", columns={"case": "{}", "speed|x plain": "{}"}, rows=rows)],
        figures={"rows": rows, "points": [POINT]},
        plots={"batch-1": [POINT]},
        notes=["of no use"],
    )


def test_figures_have_their_format() -> None:
    assert shown_as(1.2345, "{:.2f}") == "1.23"
    assert shown_as(Estimate(value=1.2345, low=1.0, high=1.5), "{}") == "1.23 [1.00, 1.50]"
    assert shown_as(None, "{:.2f}") == "-"


def test_columns_without_figures_are_left_out() -> None:
    table = Table(
        title="t", columns={"a": "{}", "b|bee": "{}", "c": "{}"}, rows=[{"a": 1, "b": None}, {"a": 2, "b": 3}]
    )
    assert [column.header for column in rich_table(table).columns] == ["a", "bee"]


def test_a_section_is_printed_kept_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    made = Report(OPTIONS)
    made.add(section())
    made.finish()
    printed = capsys.readouterr().out
    kept = json.loads((tmp_path / "results" / "demo-tiny.json").read_text())
    assert json.loads(printed.splitlines()[-1]) == {"demo": kept}
    assert kept["rows"][0]["speed"] == {"value": 1.2345, "low": 1.0, "high": 1.5}
    assert kept["notes"][0] == "random weights"
    assert kept["notes"][-1] == "of no use"
    assert read_points(json.dumps(kept)) == [POINT]
    assert "1.23 [1.00, 1.50]" in printed
    assert "random weights" in printed
    assert "/somewhere" not in printed, "paths mean something on one machine only"
    assert (tmp_path / "results" / "demo-tiny-batch-1.svg").read_text().count("<svg") == 1


def test_a_quick_run_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    made = Report(BenchOptions(target="t", draft="d", is_saved=False))
    made.add(section())
    made.finish()
    assert not (tmp_path / "results").exists()


def test_a_busy_machine_is_named() -> None:
    assert busy_note(0.0) is None
    assert "busy" in (busy_note(10_000.0) or "")
