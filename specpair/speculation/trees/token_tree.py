"""A proposed tree of tokens: several continuations that share their beginnings, judged in one pass.

Node i is a token that follows its parent; the parent of a first token is ROOT, the last committed token. Parents come
before their children, and siblings are different tokens. A chain is the tree where each node follows the one before.
The target's pass has N + 1 rows: row 0 judges the children of ROOT, and row i + 1 those of node i.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specpair.errors import InvalidFieldError
from specpair.speculation.trees.depths import depths

ROOT = -1
"""The last committed token, as the parent of a node."""


@dataclass(frozen=True, kw_only=True)
class TokenTree:
    """N tokens in a tree. Raises InvalidFieldError if they do not make one."""

    tokens: tuple[int, ...]
    """[N] token ids."""
    parents: tuple[int, ...]
    """[N] the parent of each node: ROOT or a node before it."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            problem = f"has {len(self.parents)} entries for {len(self.tokens)} tokens"
            raise InvalidFieldError("proposal.parent_indices", problem)
        seen: dict[tuple[int, int], int] = {}
        for node, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True)):
            if not ROOT <= parent < node:
                raise InvalidFieldError(
                    f"proposal.parent_indices[{node}]",
                    f"is {parent}; it must be {ROOT} or the index of an earlier token",
                )
            if token < 0:
                raise InvalidFieldError(f"proposal.token_ids[{node}]", f"is {token}; it must not be negative")
            if (twin := seen.setdefault((parent, token), node)) != node:
                raise InvalidFieldError(
                    f"proposal.token_ids[{node}]", f"repeats token {twin}, which has the same parent"
                )

    @classmethod
    def chain(cls, tokens: "tuple[int, ...] | list[int]") -> "TokenTree":
        """Each token follows the one before it."""
        return cls(tokens=tuple(tokens), parents=tuple(range(ROOT, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(ROOT, len(self) - 1))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """[N] the number of nodes on the path to each node, itself included."""
        return tuple(depths(self.parents))

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        below: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            below[parent + 1].append(node)
        return tuple(map(tuple, below))

    def children(self, node: int) -> tuple[int, ...]:
        """The children of a node or of ROOT, in ascending order."""
        return self._children[node + 1]

    def child(self, node: int, token: int) -> int | None:
        """The child with this token, if there is one."""
        return next((child for child in self.children(node) if self.tokens[child] == token), None)

    def path(self, node: int) -> list[int]:
        """The nodes from the first token to `node`; none for ROOT."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def positions(self, length: int) -> np.ndarray:
        """int64 [N]: the position of each node in the sequence, after `length` committed tokens."""
        return np.array(self.depths, dtype=np.int64) + (length - 1)
