"""Why a pass was not captured."""

from enum import StrEnum


class GraphMiss(StrEnum):
    """Why the runner of captured passes left a pass to the plain runner."""

    ROWS = "rows"
    """More rows than the largest bucket has, as while a long prompt is read."""
    KEYS = "keys"
    """Keys of so many rows and lengths would take too much memory to gather."""
    TREE = "tree"
    FEATURES = "features"
    """Hidden states of layers were asked for."""
