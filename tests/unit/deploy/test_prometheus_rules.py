"""The recording and alert rules, run by promtool on made-up series."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "deploy" / "prometheus"
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())
TESTS = sorted(path.name for path in FOLDER.glob("rules*_test.yml"))
NAMES = [rule.get("alert") or rule["record"] for group in RULES["groups"] for rule in group["rules"]]
NEVER = "vector(0) > 1"

needs_promtool = pytest.mark.needs("promtool")


def promtool(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


@needs_promtool
def test_configuration_is_valid() -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


@needs_promtool
def test_rules_do_what_they_should() -> None:
    done = promtool("test", "rules", *TESTS)
    assert done.returncode == 0, done.stderr


@pytest.mark.few_cases(4)
@needs_promtool
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_can_fall_silent(name: str, tmp_path: Path) -> None:
    """A rule that never gives anything fails the tests of the rules."""
    for file in TESTS:
        shutil.copy(FOLDER / file, tmp_path)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(_silenced(name)))
    done = promtool("test", "rules", *TESTS, folder=tmp_path)
    assert "FAILED" in done.stderr


def _silenced(name: str) -> dict[str, Any]:
    groups = [
        {**group, "rules": [{**rule, "expr": NEVER} if name in rule.values() else rule for rule in group["rules"]]}
        for group in RULES["groups"]
    ]
    return {"groups": groups}
