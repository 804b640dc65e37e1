"""`--config FILE`: what it sets, what beats it, and how mistakes in it are named. And completion by shells."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from command.flags.config_file import make_configurable
from command.main import app


def small_app(seen: list[dict[str, Any]]) -> typer.Typer:
    """Two commands and a group of one, which note what they were given."""
    app, group = typer.Typer(), typer.Typer()

    @app.command("shout")
    def shout(
        word: str = typer.Argument("hey"),
        max_times: int = typer.Option(1, "--max-times", envvar="SHOUT_MAX_TIMES"),
        loud: bool = typer.Option(False, "--loud"),
        stop: list[str] = typer.Option([], "--stop"),  # noqa: B008 (as typer wants it)
        address: str = typer.Option("here", "--address"),
    ) -> None:
        seen.append({"max_times": max_times, "loud": loud, "stop": stop, "address": address})

    @group.command("draft")
    def draft(share: float = typer.Option(0.5, "--share"), address: str = typer.Option("here", "--address")) -> None:
        seen.append({"share": share, "address": address})

    app.add_typer(group, name="serve")
    make_configurable(app)
    return app


def run(file: Path, text: str, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any], str]:
    """Exit status, what the command was given, and standard error."""
    file.write_text(text)
    seen: list[dict[str, Any]] = []
    result = CliRunner().invoke(small_app(seen), [*arguments, "--config", str(file)], env=env)
    return result.exit_code, seen[0] if seen else {}, result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "specpair.toml"


def test_a_section_holds_for_its_command(file: Path) -> None:
    text = '[shout]\nmax-times = 3\nloud = true\nstop = ["a", "b"]\n[serve.draft]\nshare = 0.25\n'
    assert run(file, text, "shout")[:2] == (
        0,
        {"max_times": 3, "loud": True, "stop": ["a", "b"], "address": "here"},
    )
    assert run(file, text, "serve", "draft")[:2] == (0, {"share": 0.25, "address": "here"})


def test_keys_before_the_sections_hold_for_all(file: Path) -> None:
    text = 'address = "there"\n[shout]\naddress = "elsewhere"\n'
    assert run(file, text, "serve", "draft")[1]["address"] == "there"
    assert run(file, text, "shout")[1]["address"] == "elsewhere"


def test_flags_beat_the_environment_which_beats_the_file(file: Path) -> None:
    text, environment = "[shout]\nmax-times = 3\n", {"SHOUT_MAX_TIMES": "4"}
    assert run(file, text, "shout")[1]["max_times"] == 3
    assert run(file, text, "shout", env=environment)[1]["max_times"] == 4
    assert run(file, text, "shout", "--max-times", "5", env=environment)[1]["max_times"] == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[shout]\nmax_times = 3\n", "unknown key of [shout]: 'max_times'; did you mean 'max-times'?"),
        ("[shout]\nword = 'a'\n", "unknown key of [shout]: 'word'"),
        ("[shout]\nconfig = 'a'\n", "unknown key of [shout]: 'config'"),
        ("[shuot]\n", "unknown section: 'shuot'; did you mean 'shout'?"),
        ("[serve]\nshare = 1\n", "unknown key of [serve]: 'share'"),
        ("serve.draft = 1\n", "[serve.draft] must be a section"),
        ("nothing = 1\n", "unknown key: 'nothing'"),
        ("[shout]\nloud = 'yes'\n", "loud must be true or false"),
        ("[shout]\nmax-times = true\n", "max-times must be a number or a text"),
        ("[shout]\nmax-times = [1]\n", "max-times must be a number or a text"),
        ("[shout]\nstop = 'a'\n", "stop must be a list"),
        ("[shout", "Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_mistakes_are_named_whatever_command_runs(file: Path, text: str, message: str) -> None:
    status, given, err = run(file, text, "serve", "draft")
    assert (status, given, err) == (2, {}, f"specpair: {file}: {message}\n")


def test_the_environment_may_name_the_file(file: Path) -> None:
    file.write_text("[shout]\nmax-times = 3\n")
    seen: list[dict[str, Any]] = []
    result = CliRunner().invoke(small_app(seen), ["shout"], env={"SPECPAIR_CONFIG": str(file)})
    assert (result.exit_code, seen[0]["max_times"]) == (0, 3)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["info"], env={"SPECPAIR_CONFIG": str(tmp_path / "nothing.toml")})
    assert result.exit_code == 2
    assert result.stderr == f"specpair: {tmp_path}/nothing.toml cannot be read: No such file or directory\n"


def test_values_are_checked_as_those_of_flags_are(file: Path) -> None:
    status, _, err = run(file, "[shout]\nmax-times = 'many'\n", "shout")
    assert status == 2 and "--max-times" in err
    file.write_text("address = '127.0.0.1:1'\n[generate]\nmax-tokens = -1\n")
    result = CliRunner().invoke(app, ["generate", "x", "--config", str(file)])
    assert result.exit_code == 2 and result.stderr.startswith("specpair: --max-tokens: is -1")
    result = CliRunner().invoke(app, ["info", "--config", str(file)])
    assert "the coordinator at 127.0.0.1:1 cannot be reached" in result.stderr


def test_every_command_has_the_flag() -> None:
    commands = [["up"], ["generate"], ["chat"], ["trace"], ["top"], ["info"], ["verify-exactness"], ["theory", "plot"]]
    commands += [["serve", name] for name in ("draft", "target", "coordinator")]
    for command in commands:
        assert "SPECPAIR_CONFIG" in CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "160"}).stdout, (
            command
        )


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("specpair gen", "generate"), ("specpair serve dr", "draft"), ("specpair generate --rule ", "coupled")],
)
def test_shells_complete_commands_and_values(typed: str, expected: str) -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
    count = len(typed.split()) - (not typed.endswith(" "))
    environments = [
        {"_SPECPAIR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(count)},
        {"_SPECPAIR_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed},
    ]
    for environment in environments:
        result = CliRunner().invoke(app, [], prog_name="specpair", env=environment)
        assert expected in result.stdout, (result.stdout, result.stderr)
