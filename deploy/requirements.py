"""Prints the requirements of a pyproject.toml, one per line: `requirements.py FILE [EXTRA]`.

With it an image can install the dependencies before it copies the sources.
"""

import sys
import tomllib
from pathlib import Path


def requirements(project: dict, extra: str | None) -> list[str]:
    """The requirements of the project, or those that an extra adds."""
    return project["dependencies"] if extra is None else project["optional-dependencies"][extra]


if __name__ == "__main__":
    document = tomllib.loads(Path(sys.argv[1]).read_text())
    print("\n".join(requirements(document["project"], sys.argv[2] if len(sys.argv) > 2 else None)))
