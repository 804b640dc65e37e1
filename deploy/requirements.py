"""Prints what a pyproject.toml requires, one requirement a line: `requirements.py FILE [EXTRA]`.

It lets an image install the dependencies before the sources are there.
"""

import sys
import tomllib
from pathlib import Path


def requirements(project: dict, extra: str | None) -> list[str]:
    """What the project needs itself, or what an extra adds to it."""
    return project["dependencies"] if extra is None else project["optional-dependencies"][extra]


if __name__ == "__main__":
    document = tomllib.loads(Path(sys.argv[1]).read_text())
    print("\n".join(requirements(document["project"], sys.argv[2] if len(sys.argv) > 2 else None)))
