"""What `specpair up --draft` may name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import command.pair.up
from command.failures import CommandError
from command.main import app
from command.pair.local_pair import ServicePlan
from command.pair.several_drafts import left_to_services, several_drafts
from coordinator.draft_names import read_drafts
from specpair.options import Drafter, Merge

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"


@pytest.mark.parametrize(
    ("text", "services", "expected"),
    [
        (None, [HERE], HERE),
        ("bundled", [HERE], HERE),
        ("/models/some.gguf", [HERE], HERE),
        ("bundled,ngram", [HERE], f"bundled={HERE},ngram"),
        ("ngram,a=bundled,b=org/Model-1B", [HERE, THERE], f"ngram,a={HERE},b={THERE}"),
        ("bundled,/models/1 small", [HERE, THERE], f"bundled={HERE},small={THERE}"),
        ("ngram,bigram", [HERE], f"{HERE},ngram,bigram"),
        ("ngram", [], "ngram"),
        ("prompt-lookup,ngram", [], "prompt-lookup,ngram"),
        ("none", [], "none"),
    ],
)
def test_the_coordinator_is_told_where_they_are(text: str | None, services: list[str], expected: str) -> None:
    drafts = several_drafts(text)
    assert drafts.addresses(services) == expected
    read_drafts(expected.split(","))


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(CommandError, match="a=/one/draft,b=/two/draft"):
        several_drafts("/one/draft,/two/draft")


@pytest.mark.parametrize("name", ["lr=3e-4", "a=b,c=d", "small, but good"])
def test_a_path_that_is_there_is_no_name_with_a_model(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = str(tmp_path / name)
    assert [model for _, model in several_drafts(path).models] == [path]
    if "," not in name:
        assert [model for _, model in several_drafts(f"bundled,{path},x={path}").models] == ["bundled", path, path]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ServicePlan]:
    """What `up` would start, which it does not."""
    plans: list[ServicePlan] = []

    async def keep(given: list[ServicePlan], *_: Any, **__: Any) -> None:
        plans.extend(given)
        await asyncio.sleep(0)

    monkeypatch.setattr(command.pair.up, "_run", keep)
    return plans


def run_up(*flags: str) -> None:
    result = CliRunner().invoke(app, ["up", *flags])
    assert result.exit_code == 0, result.output


def given(plan: ServicePlan, flag: str) -> str:
    return plan.arguments[plan.arguments.index(flag) + 1]


@pytest.mark.parametrize(
    ("flags", "services"),
    [
        (["--head", "some/head"], ["target", "coordinator"]),
        (["--draft", "none"], ["target", "coordinator"]),
        (["--head", "some/head", "--draft", "bundled"], ["draft", "target", "coordinator"]),
        (["--head", "some/head", "--drafter", "uniform"], ["draft", "target", "coordinator"]),
    ],
)
def test_a_head_needs_no_draft(flags: list[str], services: list[str], plans: list[ServicePlan]) -> None:
    run_up(*flags, "--target", "bundled")
    assert [plan.name for plan in plans] == services
    assert (given(plans[-1], "--draft") == "none") == (len(services) == 2)


@pytest.mark.parametrize(
    "flags",
    [
        ["--draft", "ngram"],
        ["--drafter", "ngram"],
        ["--draft", "none", "--drafter", "ngram"],
        ["--head", "some/head", "--drafter", "ngram"],
    ],
)
def test_a_drafter_that_reads_the_text_alone_needs_no_service(flags: list[str], plans: list[ServicePlan]) -> None:
    run_up(*flags, "--target", "bundled")
    assert [plan.name for plan in plans] == ["target", "coordinator"]
    assert given(plans[-1], "--draft") == "ngram"


@pytest.mark.parametrize(("draft", "drafter"), [("none", "bigram"), ("ngram", "bigram"), ("ngram", "prompt-lookup")])
def test_another_drafter_needs_a_draft_service(draft: str, drafter: str) -> None:
    result = CliRunner().invoke(app, ["up", "--draft", draft, "--drafter", drafter])
    assert result.exit_code == 2 and f"{drafter} needs a draft service" in result.output
    assert f"--draft is {draft}" in result.output


def test_up_starts_a_service_for_each_model(plans: list[ServicePlan]) -> None:
    run_up("--draft", "a=bundled,b=bundled,ngram", "--merge", "tree", "--target", "bundled", "--own-draft", "ngram")
    one, other, target, coordinator = plans
    assert [plan.name for plan in plans] == ["draft", "draft", "target", "coordinator"]
    assert given(coordinator, "--draft") == f"a={one.address},b={other.address},ngram"
    assert given(coordinator, "--target") == target.address and given(coordinator, "--merge") == "tree"
    assert len({plan.address for plan in plans}) == 4
    assert (given(one, "--metrics-port"), given(other, "--metrics-port")) == ("9051", "0")
    assert given(one, "--own-draft") == given(other, "--own-draft") == "ngram"
    assert float(given(one, "--gpu-memory-utilization")) == float(given(other, "--gpu-memory-utilization")) == 0.09


def test_the_prompt_of_up_leaves_the_choice_of_drafts_to_the_server() -> None:
    fields = {"merge": Merge.TREE, "drafter": Drafter.MODEL, "seed": 3}
    assert left_to_services(fields, several_drafts(None)) == {"seed": 3}
    alone = {**fields, "merge": Merge.NONE}
    assert left_to_services(alone, several_drafts(None)) == {"drafter": Drafter.MODEL, "seed": 3}
    assert left_to_services(alone, several_drafts("none")) == {"seed": 3}


def test_an_accelerated_draft_needs_a_model() -> None:
    result = CliRunner().invoke(app, ["serve", "draft", "--drafter", "ngram", "--own-draft", "ngram"])
    assert result.exit_code != 0 and "own-draft" in result.output.replace("own_draft", "own-draft")
    result = CliRunner().invoke(
        app, ["serve", "draft", "--own-draft", "some/folder", "--port", "0", "--metrics-port", "0"]
    )
    assert result.exit_code != 0 and "some/folder" in result.output


def test_a_head_of_the_target_is_not_the_drafter_of_a_draft_service() -> None:
    result = CliRunner().invoke(app, ["up", "--drafter", "medusa"])
    assert result.exit_code == 2 and "--head loads it" in result.output
