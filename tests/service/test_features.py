"""A verdict says which tokens are accepted and, if asked, what the model's layers made of them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

from specpair.v1 import proposal_pb2
from specpair.v1 import sequence_service_pb2 as pb
from specpair.v1 import target_service_pb2 as target_pb
from tests.rpc_errors import refused
from tests.services import RunningModel, engine_config, running_target
from tests.tiny_models import generate_greedily, load_plain, make_model

PROMPT = [5, 2, 7, 2, 11]
LAYERS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), num_hidden_layers=LAYERS)


@pytest.fixture(params=["plain", "fused"])
async def target(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[RunningModel]:
    async with running_target(engine_config(folder, runner=request.param)) as model:
        sampling: Any = {"temperature": 0, "seed": 1}
        for name in ("asks", "does not"):
            await model.sequences.OpenSequence(
                pb.OpenSequenceRequest(sequence_id=name, token_ids=PROMPT, sampling=sampling)
            )
        yield model


def verify(name: str, proposed: list[int], **fields: Any) -> target_pb.VerifyProposalRequest:
    return target_pb.VerifyProposalRequest(
        sequence_id=name, base_length=len(PROMPT), proposal=proposal_pb2.Proposal(token_ids=proposed), **fields
    )


@pytest.mark.parametrize("accepted", [0, 2, 3])
async def test_the_path_and_the_states_of_what_is_accepted(target: RunningModel, folder: Path, accepted: int) -> None:
    model = load_plain(folder)
    right = generate_greedily(model, PROMPT, 4)
    proposed = [token if at < accepted else (token + 1) % 64 for at, token in enumerate(right[:3])]
    response = await target.hot.VerifyProposal(verify("asks", proposed, feature_layers=[1, 0]))
    assert list(response.accepted_path) == list(range(accepted)) and response.accepted_count == accepted
    assert response.next_token_id == right[accepted]
    assert list(response.features.layers) == [1, 0]
    states = response.features.states
    assert list(states.shape) == [2, 1 + accepted, 32] and states.type == proposal_pb2.TENSOR_TYPE_FLOAT32
    received = np.frombuffer(states.data, dtype="<f4").reshape(tuple(states.shape))
    with torch.no_grad():
        own = model(torch.tensor([PROMPT + right[:accepted]]), output_hidden_states=True).hidden_states
    for layer, rows in zip((1, 0), received, strict=True):
        assert np.allclose(rows, own[layer + 1][0, len(PROMPT) - 1 :].numpy(), atol=2e-4)


async def test_who_does_not_ask_is_sent_none(target: RunningModel) -> None:
    """Beside one in the same pass that does."""
    stream = target.hot.StreamVerifications()
    calls: Any = [
        {"call_id": number, "request": verify(name, [1, 2], **fields)}
        for number, (name, fields) in enumerate({"asks": {"feature_layers": [2]}, "does not": {}}.items())
    ]
    await stream.write(target_pb.StreamVerificationsRequest(calls=calls))
    answers: dict[int, Any] = {}
    while len(answers) < 2:
        answers |= {answer.call_id: answer.response for answer in (await stream.read()).answers}
    assert [answers[number].HasField("features") for number in (0, 1)] == [True, False]
    assert answers[0].accepted_path == answers[1].accepted_path


async def test_layers_that_do_not_exist_are_refused(target: RunningModel) -> None:
    found = await refused(
        target.hot.VerifyProposal(verify("asks", [], feature_layers=[0, LAYERS])),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    assert (found["field"], found["limit"]) == ("feature_layers", str(LAYERS - 1))
    found = await refused(
        target.hot.VerifyProposal(verify("asks", [], feature_layers=[0] * 9)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    assert (found["field"], found["limit"]) == ("feature_layers", "8")
    response = await target.hot.VerifyProposal(verify("asks", [], feature_layers=[LAYERS - 1]))
    assert list(response.features.states.shape) == [1, 1, 32]
