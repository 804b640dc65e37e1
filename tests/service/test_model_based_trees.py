"""Any order of calls with trees of tokens, beams, proposals of the target's own and steps that it goes on to by itself
finds the tokens of a fresh prefill: `test_model_based.py` with what a target verifies beside chains.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from specpair.speculation.trees.depths import depths
from specpair.v1.proposal_pb2 import Proposal
from specpair.v1.sequence_service_pb2 import RollbackSequenceRequest
from specpair.v1.target_service_pb2 import Continuation, ScoreTreeRequest
from tests.service.test_model_based import (
    MAX_LENGTH,
    VOCABULARY,
    Known,
    ModelWorld,
    ServiceMachine,
    TargetMachine,
    make_oracle,
    run_machine,
    small_config,
)
from tests.services import RunningModel, running_target
from tests.tiny_heads import make_head
from tests.tiny_target_heads import make_lookahead, make_medusa

MAX_NODES = 8
HEADS: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "eagle": (lambda folder: make_head(folder, vocab_size=VOCABULARY), {"head_tree_tokens": MAX_NODES}),
    "medusa": (make_medusa, {}),
    "pass": (make_lookahead, {}),
}
Node = tuple[int, int, bool]
"""Which of the nodes before it is its parent, its token, and whether it is the target's own instead."""
nodes = st.lists(
    st.tuples(st.integers(0, MAX_NODES), st.integers(0, VOCABULARY - 1), st.booleans()), max_size=MAX_NODES
)
few_tokens = st.lists(st.integers(0, VOCABULARY - 1), max_size=3)


class TargetWorld(ModelWorld):
    """A target, with a head or without."""

    def __init__(self, cache: str, head: str) -> None:
        self.head = head
        super().__init__(cache, is_target=True)

    def start(self, folder: Path) -> AbstractAsyncContextManager[RunningModel]:
        self.next_token = make_oracle(folder / "target")
        config = small_config(folder / "target", self.cache)
        if self.head:
            make, changes = HEADS[self.head]
            config = replace(config, head=str(make(folder / "head")), **changes)
        return running_target(config)


class TreeMachine(TargetMachine):
    def __init__(self) -> None:
        super().__init__()
        self.offered: dict[str, tuple[list[int], Proposal]] = {}
        """What the target proposed, by the sequence, and after which tokens."""

    @property
    def target(self) -> TargetWorld:
        assert isinstance(self.world, TargetWorld)
        return self.world

    def tree(self, tokens: list[int], shape: list[Node]) -> tuple[list[int], list[int]]:
        """Tokens and parents of a tree after `tokens`."""
        paths: list[list[int]] = [[]]
        found: list[tuple[int, int]] = []
        for place, token, is_right in shape:
            parent = place % len(paths) - 1
            path = paths[1 + parent]
            chosen = self.target.next_token((*tokens, *path)) if is_right else token
            if (parent, chosen) not in found:  # siblings are different tokens
                found.append((parent, chosen))
                paths.append([*path, chosen])
        return [token for _, token in found], [parent for parent, _ in found]

    def followed(self, tokens: list[int], proposal: Proposal) -> tuple[list[int], list[int]]:
        """The path that the target takes through a proposal after `tokens`, and what it commits."""
        parents = list(proposal.parent_indices) or range(-1, len(proposal.token_ids) - 1)
        children = {pair: node for node, pair in enumerate(zip(parents, proposal.token_ids, strict=True))}
        path: list[int] = []
        committed: list[int] = []
        while True:
            committed.append(self.target.next_token((*tokens, *committed)))
            node = children.get((path[-1] if path else -1, committed[-1]))
            if node is None:
                return path, committed
            path.append(node)

    def judge(self, known: Known, request: Any, tokens: list[int]) -> Any:
        """The verdict of a call after `tokens`, which is as expected."""
        response = self.call("VerifyProposal", request)
        path, committed = self.followed(tokens, request.proposal)
        assert (list(response.accepted_path), response.next_token_id) == (path, committed[-1])
        known.tokens = [*tokens, *committed]
        assert (response.length, response.accepted_count) == (len(known.tokens), len(path))
        known.step, known.last = request.step, (request, response)
        if response.HasField("next_proposal"):
            assert len(known.tokens) + len(response.next_proposal.token_ids) <= MAX_LENGTH
            self.offered[known.name] = list(known.tokens), response.next_proposal
        return response

    @rule(
        known=ServiceMachine.sequences,
        back=st.integers(0, 6),
        appended=few_tokens,
        shape=nodes,
        order=st.integers(0, 5),
    )
    def verify_tree(self, known: Known, back: int, appended: list[int], shape: list[Node], order: int) -> None:
        base, appended = self.move(known, back, appended)
        tokens = [*known.tokens[:base], *appended]
        proposed, parents = self.tree(tokens, shape)
        if len(tokens) + len(proposed) > MAX_LENGTH:
            return
        request = self.hot_request(known, base, appended)
        request.proposal.CopyFrom(Proposal(token_ids=proposed, parent_indices=parents))
        request.next_proposal_count = order if self.target.head else 0
        self.judge(known, request, tokens)

    @precondition(lambda self: self.target.head)
    @rule(known=ServiceMachine.sequences, order=st.integers(0, 5))
    def repeat_what_the_target_proposed(self, known: Known, order: int) -> None:
        after, proposal = self.offered.get(known.name, ([], Proposal()))
        if after == known.tokens and proposal.token_ids:
            request = self.hot_request(known, len(after), [])
            request.proposal.CopyFrom(proposal)
            request.next_proposal_count = order
            self.judge(known, request, after)

    @rule(known=ServiceMachine.sequences, shape=nodes, order=st.integers(0, 4), is_kept=st.booleans())
    def go_on(self, known: Known, shape: list[Node], order: int, is_kept: bool) -> None:
        """The target goes on to the next step by itself. The answer of this one may have been lost, and what is refused
        meanwhile changes nothing. Then the promised call comes, or the caller rolls back instead."""
        tokens, order = known.tokens, order if self.target.head else 0
        proposed, parents = self.tree(tokens, shape)
        if len(tokens) + len(proposed) + 1 + MAX_NODES > MAX_LENGTH:
            return
        request = self.hot_request(known, len(tokens), [])
        request.proposal.CopyFrom(Proposal(token_ids=proposed, parent_indices=parents))
        request.next_proposal_count = order
        request.continuation.CopyFrom(Continuation(next_proposal_count=order))
        response = self.judge(known, request, tokens)
        following = self.hot_request(known, len(known.tokens), [])
        following.next_proposal_count = order
        if response.HasField("next_proposal"):
            following.proposal.CopyFrom(response.next_proposal)
        self.refuse_later(known)
        assert self.call("VerifyProposal", request) == response
        if is_kept:
            self.judge(known, following, known.tokens)
        else:
            self.call("RollbackSequence", RollbackSequenceRequest(sequence_id=known.name, length=len(known.tokens)))
        known.step, known.last = following.step, None  # calls of the steps before are refused for another reason

    @rule(known=ServiceMachine.sequences, shape=nodes, order=st.integers(0, 4), rounds=st.integers(2, 5))
    def run(self, known: Known, shape: list[Node], order: int, rounds: int) -> None:
        """Several rounds in one call; those after the first judge what the target proposed. The answer may be lost."""
        tokens, order = known.tokens, order if self.target.head else 0
        proposed, parents = self.tree(tokens, shape)
        depth = max(depths(parents), default=0)
        if len(tokens) + max(len(proposed), depth + (rounds - 1) * (1 + order)) > MAX_LENGTH:
            return
        request = self.hot_request(known, len(tokens), [])
        request.proposal.CopyFrom(Proposal(token_ids=proposed, parent_indices=parents))
        request.next_proposal_count, request.run_length = order, rounds
        response = self.call("VerifyProposal", request)
        assert self.call("VerifyProposal", request) == response
        path, committed = self.followed(tokens, request.proposal)
        assert (list(response.accepted_path), response.next_token_id) == (path, committed[-1])
        for token in response.run_token_ids:
            assert token == self.target.next_token((*tokens, *committed))
            committed.append(token)
        accepted = list(response.run_accepted_counts) or [0] * len(response.run_token_ids)
        assert len(accepted) == rounds - 1 and sum(accepted) + len(accepted) == len(response.run_token_ids)
        known.tokens, known.last = [*tokens, *committed], None
        known.step = request.step + rounds - 1
        assert response.length == len(known.tokens)
        if response.HasField("next_proposal"):
            self.offered[known.name] = list(known.tokens), response.next_proposal

    def refuse_later(self, known: Known) -> None:
        """A call of a later step is refused while one is under way, and then because it counts on too much."""
        request = self.hot_request(known, MAX_LENGTH + 50, [])
        request.step += 1
        while True:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                self.call("VerifyProposal", request)
            if caught.value.code() is not grpc.StatusCode.ABORTED:
                break
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION

    @precondition(lambda self: not self.target.head)
    @rule(
        known=ServiceMachine.sequences,
        back=st.integers(0, 4),
        appended=few_tokens,
        shape=nodes,
        every=st.integers(1, 3),
    )
    def score_tree(self, known: Known, back: int, appended: list[int], shape: list[Node], every: int) -> None:
        base, appended = self.move(known, back, appended)
        tokens = [*known.tokens[:base], *appended]
        beams, parents = self.tree(tokens, shape)
        if len(tokens) + len(beams) > MAX_LENGTH:
            return
        asked = list(range(-1, len(beams), every))
        request = ScoreTreeRequest(
            sequence_id=known.name,
            step=known.step + 1,
            base_length=base,
            appended_token_ids=appended,
            tree={"token_ids": beams, "parent_indices": parents},  # type: ignore[arg-type]
            asked_nodes=asked,
            logprobs=2,
        )
        response = self.call("ScoreTree", request)
        assert self.call("ScoreTree", request) == response
        for place, node in enumerate(asked):
            path: list[int] = []
            while node >= 0:
                path, node = [beams[node], *path], parents[node]
            assert response.token_ids[2 * place] == self.target.next_token((*tokens, *path))
        known.tokens, known.step, known.last = tokens, request.step, None


@pytest.mark.few_cases("contiguous-eagle", "paged-")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("cache", "head"),
    [("contiguous", ""), ("paged", ""), ("contiguous", "eagle"), ("paged", "medusa"), ("paged", "pass")],
)
def test_any_order_of_calls(cache: str, head: str) -> None:
    run_machine(TreeMachine, TargetWorld(cache, head))
