"""A target that verifies trees of tokens generates what it would generate without them."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from specpair.native.library import native_library
from specpair.options import SamplingOptions
from specpair.speculation.count_row import TOTAL, CountRow
from specpair.speculation.trees.drawn_tree import Draw
from specpair.speculation.trees.token_tree import TokenTree
from specpair.v1 import proposal_pb2, sampling_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from specpair.wire.counts import encode_counts
from specpair.wire.trees import encode_tree
from tests.reference import coupled_choice, plain_loop
from tests.rpc_errors import refused
from tests.services import RunningModel, engine_config, running_target
from tests.tiny_models import load_plain, make_model

PROMPT = [5, 2, 7, 2, 11]
VOCABULARY = 64
COUNT = 24
WAYS = [
    ("plain", "paged"),
    ("plain", "contiguous"),
    ("fused", "contiguous"),
    ("native", "contiguous"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), vocab_size=VOCABULARY)


@pytest.fixture(params=WAYS, ids="-".join)
async def target(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[RunningModel]:
    runner, cache = request.param
    if runner == "native" and native_library() is None:
        pytest.skip("needs a compiler")
    async with running_target(engine_config(folder, runner=runner, cache=cache)) as model:
        yield model


def tree_with(right: list[int], choice: random.Random) -> proposal_pb2.Proposal:
    """Up to ten nodes, among them a path with the first tokens of `right`, in between others."""
    tokens: list[int] = []
    parents: list[int] = []
    on_path = {-1: 0}
    """Nodes of the right path, with the number of right tokens up to them."""
    for _ in range(choice.randint(2, 10)):
        parent = choice.randint(-1, len(tokens) - 1)
        depth = on_path.get(parent)
        is_right = depth is not None and depth < len(right) and choice.random() < 0.7
        token = right[depth or 0] if is_right else choice.randrange(VOCABULARY)
        if (parent, token) in zip(parents, tokens, strict=True):
            continue  # siblings are different tokens
        if depth is not None and depth < len(right) and token == right[depth]:
            on_path[len(tokens)] = depth + 1
        tokens.append(token)
        parents.append(parent)
    return proposal_pb2.Proposal(token_ids=tokens, parent_indices=parents)


async def generated(target: RunningModel, name: str, expected: list[int], **fields: Any) -> tuple[list[int], int]:
    """Tokens of a sequence, each round with a tree that has some of what is expected; and how many were accepted."""
    await target.sequences.OpenSequence(pb.OpenSequenceRequest(sequence_id=name, token_ids=PROMPT, **fields))
    choice = random.Random(name)
    tokens: list[int] = []
    accepted = 0
    for step in range(COUNT):
        tree = tree_with(expected[len(tokens) :], choice)
        answer = await target.hot.VerifyProposal(
            target_pb.VerifyProposalRequest(
                sequence_id=name, step=step, base_length=len(PROMPT) + len(tokens), proposal=tree
            )
        )
        path = list(answer.accepted_path)
        assert answer.accepted_count == len(path)
        assert [tree.parent_indices[node] for node in path] == [-1, *path][: len(path)]
        tokens += [*(tree.token_ids[node] for node in path), answer.next_token_id]
        accepted += len(path)
        assert answer.length == len(PROMPT) + len(tokens)
        if len(tokens) >= COUNT:
            break
    await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))
    return tokens[:COUNT], accepted


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.5, "repetition_penalty": 1.3},
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_greedy(target: RunningModel, folder: Path, name: str) -> None:
    options = OPTIONS[name]
    sampling = SamplingOptions(temperature=0.0, seed=1, **options)
    expected = plain_loop(load_plain(folder), PROMPT, sampling, COUNT + 8, lambda row, _: int(row.argmax()))
    found, accepted = await generated(
        target, f"{name} greedy", expected, sampling={"seed": 1, "temperature": 0, **options}
    )
    assert found == expected[:COUNT]
    assert accepted >= COUNT // 4
    await target.check_clean()


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", [1, 2])
async def test_coupled(target: RunningModel, folder: Path, name: str, seed: int) -> None:
    options = OPTIONS[name]
    sampling = SamplingOptions(seed=seed, **options)
    expected = plain_loop(load_plain(folder), PROMPT, sampling, COUNT + 8, coupled_choice(seed))
    found, accepted = await generated(
        target,
        f"{name} {seed}",
        expected,
        sampling={"seed": seed, **options},
        rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
    )
    assert found == expected[:COUNT]
    assert accepted >= COUNT // 4
    await target.check_clean()


@pytest.mark.parametrize("parents", [[-1], [0, -1], [-1, 1], [-1, -2], [-1, 0, 1]])
async def test_parents_that_make_no_tree(target: RunningModel, parents: list[int]) -> None:
    await target.sequences.OpenSequence(
        pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 1, "temperature": 0})
    )
    tree = proposal_pb2.Proposal(token_ids=[1, 2], parent_indices=parents)
    call = target.hot.VerifyProposal(
        target_pb.VerifyProposalRequest(sequence_id="s", base_length=len(PROMPT), proposal=tree)
    )
    found = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert found["field"].startswith("proposal.parent_indices")
    await target.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id="s"))


async def test_a_deterministic_target_refuses_trees(folder: Path) -> None:
    async with running_target(engine_config(folder, deterministic=True)) as target:
        await target.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 1})
        )
        assert not (await target.sequences.GetModelInfo(pb.GetModelInfoRequest())).runs_trees
        tree = proposal_pb2.Proposal(token_ids=[1, 2], parent_indices=[-1, -1])
        request = target_pb.VerifyProposalRequest(sequence_id="s", base_length=len(PROMPT), proposal=tree)
        await refused(target.hot.VerifyProposal(request), grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED")


async def test_more_draws_than_drafts_could_need_are_refused(folder: Path) -> None:
    """Each draw may name a row of its own, and each row takes as much memory as the widest."""
    async with running_target(engine_config(folder)) as target:
        await target.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 1})
        )
        most = 4 * target.host.max_num_speculative_tokens
        rows = encode_counts([CountRow((1,), (TOTAL,))] * (most + 1))
        tree = proposal_pb2.Proposal(
            token_ids=[1],
            parent_indices=[-1],
            distributions=rows,
            draw_nodes=[0] * (most + 1),
            draw_rows=range(most + 1),
        )
        request = target_pb.VerifyProposalRequest(sequence_id="s", base_length=len(PROMPT), proposal=tree)
        found = await refused(target.hot.VerifyProposal(request), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert found["field"] == "proposal.draw_nodes"


async def test_the_drafts_probabilities_are_those_of_the_rows_that_were_drawn_from(folder: Path) -> None:
    async with running_target(engine_config(folder)) as target:
        await target.sequences.OpenSequence(
            pb.OpenSequenceRequest(sequence_id="s", token_ids=PROMPT, sampling={"seed": 1})
        )
        rows = [CountRow((1, 3), (TOTAL // 4, TOTAL - TOTAL // 4)), CountRow((2, 3), (TOTAL // 2, TOTAL // 2))]
        tree = TokenTree(tokens=(3, 1, 2), parents=(-1, -1, 0))
        request = target_pb.VerifyProposalRequest(
            sequence_id="s",
            base_length=len(PROMPT),
            proposal=encode_tree(tree, rows, (Draw(0, 0), Draw(1, 0), Draw(2, 1))),
            include_probabilities=True,
        )
        assert list((await target.hot.VerifyProposal(request)).draft_probabilities) == [0.75, 0.25, 0.5]
