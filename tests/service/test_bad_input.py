"""What bad input gets from real services (docs/reliability.md), and that they go on unharmed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from coordinator.config import CoordinatorConfig
from coordinator.pair import connect_pair
from specpair.errors import VocabularyMismatchError
from specpair.server.config import ServerConfig
from specpair.v1 import draft_service_pb2, proposal_pb2, target_service_pb2
from specpair.v1 import sequence_service_pb2 as pb
from tests.poison import poison
from tests.rpc_errors import refused
from tests.services import RunningModel, engine_config, running_draft, running_pair, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

VOCABULARY = 32
MAX_LENGTH = 40
POISON = 31
"""A token whose embedding is NaN."""
Code = grpc.StatusCode
SAMPLING = {"temperature": 0.0, "seed": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), seed=2, vocab_size=VOCABULARY, tie_word_embeddings=False)


def config(folder: Path) -> Any:
    return engine_config(folder, max_model_len=MAX_LENGTH, max_num_seqs=4, max_num_speculative_tokens=4)


@pytest_asyncio.fixture
async def target(folder: Path) -> AsyncIterator[RunningModel]:
    async with running_target(config(folder)) as model:
        poison(model.host, POISON)
        yield model
        await check_alive(model, folder)


@pytest_asyncio.fixture
async def draft(folder: Path) -> AsyncIterator[RunningModel]:
    async with running_draft(config(folder)) as model:
        poison(model.host, POISON)
        yield model
        for _, name in list(model.host.sequences._held):
            await close(model, name)
        await model.check_clean()


async def check_alive(target: RunningModel, folder: Path) -> None:
    """After every kind of bad input the service still decodes right, and ends with every block free."""
    for _, name in list(target.host.sequences._held):
        await close(target, name)
    await open_sequence(target, "alive", [1, 2, 3])
    truth = generate_greedily(load_plain(folder), [1, 2, 3], 3)
    response = await target.hot.VerifyProposal(verify("alive", 0, 3, truth[:2]))
    assert (response.accepted_count, response.next_token_id) == (2, truth[2])
    await close(target, "alive")
    await target.check_clean()


async def open_sequence(model: RunningModel, name: str, tokens: list[int], **fields: Any) -> None:
    request = pb.OpenSequenceRequest(sequence_id=name, token_ids=tokens, sampling=SAMPLING)
    request.MergeFrom(pb.OpenSequenceRequest(**fields))
    await model.sequences.OpenSequence(request)


async def close(model: RunningModel, name: str) -> None:
    await model.sequences.CloseSequence(pb.CloseSequenceRequest(sequence_id=name))


def verify(name: str, step: int, base: int, tokens: list[int], **fields: Any) -> Any:
    proposal = proposal_pb2.Proposal(token_ids=tokens, distributions=fields.pop("distributions", None))
    return target_service_pb2.VerifyProposalRequest(
        sequence_id=name, step=step, base_length=base, proposal=proposal, **fields
    )


def sparse(sizes: list[int], ids: list[int], counts: list[int], total_log2: int = 4) -> Any:
    message = proposal_pb2.SparseDistributions(
        support_sizes=sizes,
        token_ids=np.array(ids, dtype="<u4").tobytes(),
        counts=np.array(counts, dtype="<u4").tobytes(),
        total_log2=total_log2,
    )
    return proposal_pb2.Distributions(sparse=message)


def dense(shape: list[int], row: list[float]) -> Any:
    data = np.array(row, dtype="<f4").tobytes()
    tensor = proposal_pb2.Tensor(type=proposal_pb2.TENSOR_TYPE_FLOAT32, shape=shape, data=data)
    return proposal_pb2.Distributions(dense=proposal_pb2.DenseDistributions(probabilities=tensor))


BAD_PROPOSALS = {
    "id outside the vocabulary": (([VOCABULARY],), {}, "proposal.token_ids"),
    "too many tokens": (([1] * 5,), {}, "proposal.token_ids"),
    "fewer rows than tokens": (([1, 2],), {"distributions": sparse([1], [1], [16])}, "support_sizes"),
    "counts that do not sum up": (([1],), {"distributions": sparse([1], [1], [15])}, "counts"),
    "an id twice": (([1],), {"distributions": sparse([2], [1, 1], [8, 8])}, "token_ids"),
    "bytes cut short": (([1],), {"distributions": sparse([2], [1], [16])}, "token_ids"),
    "no mass on the token": (([1],), {"distributions": sparse([1], [2], [16])}, "distributions"),
    "not normalised": (([1],), {"distributions": dense([1, VOCABULARY], [1.0] * VOCABULARY)}, "dense"),
    "shape and bytes disagree": (([1],), {"distributions": dense([1, VOCABULARY], [1.0])}, "dense"),
    "a row of NaN": (([1],), {"distributions": dense([1, VOCABULARY], [float("nan")] * VOCABULARY)}, "dense"),
}


@pytest.mark.parametrize("case", BAD_PROPOSALS)
async def test_bad_proposals(target: RunningModel, case: str) -> None:
    (tokens,), fields, named = BAD_PROPOSALS[case]
    await open_sequence(target, "s", [1, 2, 3])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await target.hot.VerifyProposal(verify("s", 0, 3, tokens, **fields))
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert named in str(caught.value.details())
    # The step was not used up, and the sequence stands where it stood.
    beyond = target.hot.VerifyProposal(verify("s", 0, 4, []))
    assert (await refused(beyond, Code.FAILED_PRECONDITION, "BASE_LENGTH_MISMATCH"))["held_length"] == "3"
    assert (await target.hot.VerifyProposal(verify("s", 0, 3, []))).length == 4


async def test_a_tree_needs_a_parent_for_each_token(target: RunningModel) -> None:
    await open_sequence(target, "s", [1, 2, 3])
    request = verify("s", 0, 3, [1, 2])
    request.proposal.parent_indices.extend([-1])
    found = await refused(target.hot.VerifyProposal(request), Code.INVALID_ARGUMENT, "INVALID_FIELD")
    assert found["field"] == "proposal.parent_indices"


async def test_prompts(target: RunningModel) -> None:
    too_long = open_sequence(target, "s", [1] * MAX_LENGTH)
    found = await refused(too_long, Code.INVALID_ARGUMENT, "PROMPT_TOO_LONG")
    assert (found["length"], found["limit"]) == (str(MAX_LENGTH), str(MAX_LENGTH - 1))
    outside = open_sequence(target, "s", [1, VOCABULARY])
    found = await refused(outside, Code.INVALID_ARGUMENT, "INVALID_FIELD")
    assert (found["field"], found["limit"]) == ("token_ids", str(VOCABULARY - 1))
    for fields in ({"sampling": {"temperature": -1}}, {"sampling": {"top_p": 0.0}}, {"prompt_length": 9}):
        await refused(open_sequence(target, "s", [1], **fields), Code.INVALID_ARGUMENT, "INVALID_FIELD")
    nameless = target.sequences.OpenSequence(pb.OpenSequenceRequest(token_ids=[1], sampling=SAMPLING))
    await refused(nameless, Code.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_positions(target: RunningModel) -> None:
    unknown = target.hot.VerifyProposal(verify("nobody", 0, 1, []))
    await refused(unknown, Code.NOT_FOUND, "SEQUENCE_NOT_FOUND")
    await open_sequence(target, "s", [1, 2, 3])
    found = await refused(
        target.hot.VerifyProposal(verify("s", 0, 9, [])), Code.FAILED_PRECONDITION, "BASE_LENGTH_MISMATCH"
    )
    assert found["held_length"] == "3"
    await refused(target.hot.VerifyProposal(verify("s", 0, 0, [])), Code.INVALID_ARGUMENT, "INVALID_FIELD")
    beyond = verify("s", 0, 3, [], appended_token_ids=[1] * MAX_LENGTH)
    await refused(target.hot.VerifyProposal(beyond), Code.INVALID_ARGUMENT, "INVALID_FIELD")
    await target.hot.VerifyProposal(verify("s", 5, 3, []))
    found = await refused(target.hot.VerifyProposal(verify("s", 4, 4, [])), Code.ABORTED, "STALE_STEP")
    assert found["last_step"] == "5"
    await refused(target.hot.VerifyProposal(verify("s", 5, 2, [])), Code.ALREADY_EXISTS, "CONFLICTING_BODY")
    rollback = pb.RollbackSequenceRequest(sequence_id="s", length=9)
    await refused(target.sequences.RollbackSequence(rollback), Code.OUT_OF_RANGE, "LENGTH_NOT_REACHED")
    rollback.length = 1  # behind the prompt
    assert (await target.sequences.RollbackSequence(rollback)).length == 1


async def test_no_room_for_another_sequence(target: RunningModel) -> None:
    for i in range(4):
        await open_sequence(target, f"s{i}", [1])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await open_sequence(target, "s4", [1])
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(caught.value)  # pyright: ignore[reportArgumentType]
    assert status is not None and any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)


async def test_not_a_number_fails_that_request_alone(target: RunningModel, folder: Path) -> None:
    import asyncio

    await open_sequence(target, "bad", [1, POISON])
    await open_sequence(target, "good", [1, 2, 3])
    calls = (
        target.hot.VerifyProposal(verify("bad", 0, 2, [])),
        target.hot.VerifyProposal(verify("good", 0, 3, [])),
    )
    bad, good = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(bad, grpc.aio.AioRpcError) and bad.code() is Code.INTERNAL
    assert "NaN" in str(bad.details())
    assert not isinstance(good, BaseException)
    assert good.next_token_id == generate_greedily(load_plain(folder), [1, 2, 3], 1)[0]
    rollback = pb.RollbackSequenceRequest(sequence_id="bad", length=1)
    await target.sequences.RollbackSequence(rollback)  # without the poison it goes on
    healed = await target.hot.VerifyProposal(verify("bad", 1, 1, []))
    assert healed.next_token_id == generate_greedily(load_plain(folder), [1], 1)[0]


async def test_draft_calls(draft: RunningModel) -> None:
    def propose(name: str, step: int, base: int, count: int, **fields: Any) -> Any:
        return draft.hot.ProposeTokens(
            draft_service_pb2.ProposeTokensRequest(
                sequence_id=name, step=step, base_length=base, num_speculative_tokens=count, **fields
            )
        )

    await refused(propose("nobody", 0, 1, 1), Code.NOT_FOUND, "SEQUENCE_NOT_FOUND")
    await open_sequence(draft, "s", [1, 2, 3])
    for count in (0, 5):
        found = await refused(propose("s", 0, 3, count), Code.INVALID_ARGUMENT, "INVALID_FIELD")
        assert (found["field"], found["limit"]) == ("num_speculative_tokens", "4")
    await refused(propose("s", 0, 4, 1), Code.FAILED_PRECONDITION, "BASE_LENGTH_MISMATCH")
    await refused(propose("s", 0, 3, 1, appended_token_ids=[VOCABULARY]), Code.INVALID_ARGUMENT, "INVALID_FIELD")
    await refused(propose("s", 0, 3, 1, appended_token_ids=[POISON]), Code.INTERNAL, "NOT_FINITE")
    assert len((await propose("s", 0, 3, 2)).proposal.token_ids) == 2


async def test_padded_vocabularies_are_one(tmp_path: Path) -> None:
    """A draft with wider logits never proposes an id that the target does not have."""
    target = make_model(tmp_path / "target", seed=2, vocab_size=8)
    draft = make_model(tmp_path / "draft", seed=3, vocab_size=64)
    async with running_draft(engine_config(draft)) as model:
        await open_sequence(model, "s", [1], vocab_size=8, sampling={"temperature": 5.0})
        for step in range(20):
            request = draft_service_pb2.ProposeTokensRequest(
                sequence_id="s", step=step, base_length=1, num_speculative_tokens=8
            )
            assert max((await model.hot.ProposeTokens(request)).proposal.token_ids) < 8
    assert target.is_dir()


async def test_other_vocabularies_are_refused_at_start(folder: Path, tmp_path: Path) -> None:
    """By token strings: both have the bundled tokenizer, but one has two strings exchanged."""
    import json
    import shutil

    bundled = Path(__file__).parents[2] / "models" / "bundled" / "target"
    for name in ("target", "draft"):
        make_model(tmp_path / name, seed=2, vocab_size=4096)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(bundled / file, tmp_path / name / file)
    path = tmp_path / "draft" / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    left, right = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    vocabulary[left], vocabulary[right] = vocabulary[right], vocabulary[left]
    content["normalizer"] = {"type": "Lowercase"}  # without that the draft would translate
    path.write_text(json.dumps(content))
    async with (
        running_target(engine_config(tmp_path / "target")) as target,
        running_draft(engine_config(tmp_path / "draft")) as draft,
    ):
        settings = CoordinatorConfig(
            server=ServerConfig(port=0), target_addresses=(target.address,), draft_addresses=(draft.address,)
        )
        with pytest.raises(VocabularyMismatchError, match=r"4094.*Lowercase"):
            async with connect_pair(settings):
                pass


async def test_a_poisoned_draft_costs_no_token(folder: Path, tmp_path: Path) -> None:
    """A draft that fails on every call: the request goes on with the target alone, and counts it."""
    target = make_model(tmp_path / "target", seed=2, vocab_size=VOCABULARY)
    prompt = [1, POISON, 2]
    async with running_pair(engine_config(target), config(folder), draft_cooldown=0.01, stream_interval=0.0) as pair:
        assert pair.draft is not None
        poison(pair.draft.host, POISON)
        output = await pair.generate(prompt, 10, temperature=0)
        await pair.check_clean()
    assert output.token_ids == generate_greedily(load_plain(target), prompt, 10)
    assert output.summary.speculation.fallback_count > 0
    assert output.summary.speculation.accepted_token_count == 0
