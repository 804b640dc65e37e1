"""What the documents point to is there: files, headings, folders; and the README stays short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OUTSIDE = {".venv", "node_modules", "build"}
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.md") if not OUTSIDE & set(path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FOLDERS = "bench|command|coordinator|deploy|docs|draft_service|examples|proto|specpair|target_service|tests"
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
MOST_LINES = 200


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path, level: str = "#+") -> set[str]:
    """Those of its headings, as GitHub makes them."""
    headings = re.findall(rf"^{level} (.*)$", without_code(document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name: str) -> None:
    document, broken = ROOT / name, []
    for file, anchor in LINK.findall(without_code(document.read_text())):
        linked = (document.parent / file).resolve() if file else document
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(f"{file}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_named_is_there(name: str) -> None:
    named = NAMED.findall((ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    decisions = [
        f"({file.name}#{anchor})"
        for file in sorted(folder.glob("*.md"))
        if file.name != "README.md"
        for anchor in anchors(file, "###")
    ]
    assert len(decisions) > 80
    assert [decision for decision in decisions if decision not in index] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES
