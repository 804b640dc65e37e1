"""The page: a route for each of its files, so that other paths stay unknown and other methods not allowed."""

from collections.abc import Iterator
from pathlib import Path

from starlette.routing import Route
from starlette.staticfiles import StaticFiles

PAGE = Path(__file__).parent / "page"


def page_paths(page: Path) -> Iterator[str]:
    """The paths of a page's files, and of itself. None if it is not installed."""
    if page.is_dir():
        yield "/"
        yield from (f"/{file.relative_to(page).as_posix()}" for file in page.rglob("*") if file.is_file())


def page_routes(page: Path) -> list[Route]:
    """They answer GET and HEAD."""
    files = StaticFiles(directory=page, html=True, check_dir=False)
    return [Route(path, files, methods=["GET"]) for path in page_paths(page)]
