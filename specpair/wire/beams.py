"""Trees of beams in messages. Received messages are not trusted: any mistake raises an error that names the field."""

from collections.abc import Sequence

from specpair.errors import InvalidFieldError
from specpair.options import check_count, check_range
from specpair.speculation.beams.beam_options import MAX_TREE_NODES
from specpair.speculation.beams.beam_tree import ROOT, BeamTree
from specpair.v1 import beams_pb2


def encode_beams(tree: BeamTree) -> beams_pb2.BeamTree:
    return beams_pb2.BeamTree(token_ids=tree.tokens, parent_indices=tree.parents)


def decode_beams(message: beams_pb2.BeamTree, vocab_size: int) -> BeamTree:
    """The tree of a request's field `tree`. Raises InvalidFieldError."""
    check_count("tree.token_ids", len(message.token_ids), MAX_TREE_NODES)
    tree = BeamTree()
    extend(tree, message.token_ids, message.parent_indices, vocab_size)
    return tree


def extend(tree: BeamTree, tokens: Sequence[int], parents: Sequence[int], vocab_size: int) -> None:
    """Adds tokens of a message to the tree. Raises InvalidFieldError; the tokens before the mistake are in it then."""
    if len(tokens) != len(parents):
        raise InvalidFieldError("tree.parent_indices", f"has {len(parents)} entries for {len(tokens)} tokens")
    first = len(tree)
    for index, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not ROOT <= parent < first + index:
            problem = f"is {parent}; it must be {ROOT} or the index of an earlier token"
            raise InvalidFieldError(f"tree.parent_indices[{index}]", problem)
        check_range(f"tree.token_ids[{index}]", token, 0, vocab_size - 1)
        if tree.add(parent, token) != first + index:
            raise InvalidFieldError(f"tree.token_ids[{index}]", "repeats a token that has the same parent")


def check_nodes(field: str, nodes: Sequence[int], tree: BeamTree, most: int) -> list[int]:
    """The nodes, from 1 to `most` different ones. Raises InvalidFieldError."""
    check_range(f"{field} length", len(nodes), 1, most)
    for index, node in enumerate(nodes):
        check_range(f"{field}[{index}]", node, ROOT, len(tree) - 1)
    if len(set(nodes)) < len(nodes):
        raise InvalidFieldError(field, "names a token twice")
    return list(nodes)
