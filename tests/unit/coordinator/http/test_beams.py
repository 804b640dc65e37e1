"""Beam search in HTTP's parameters."""

from typing import Any

import pytest

from coordinator.http.messages import completion_requests
from coordinator.http.parameters import CompletionParameters
from specpair.v1 import coordinator_service_pb2 as pb

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"use_beam_search": True, "n": 3}, {"num_beams": 3}),
    ({"use_beam_search": True}, {"num_beams": 1}),
    ({"use_beam_search": True, "n": 2, "num_beams": 4}, {"num_beams": 4}),
    ({"num_beams": 4, "early_stopping": True}, {"num_beams": 4, "early_stopping": pb.EARLY_STOPPING_FIRST}),
    ({"num_beams": 4, "early_stopping": "never"}, {"num_beams": 4, "early_stopping": pb.EARLY_STOPPING_NEVER}),
    ({"num_beams": 4, "early_stopping": False}, {"num_beams": 4}),
    ({"num_beams": 4, "length_penalty": 0.5}, {"num_beams": 4, "length_penalty": 0.5}),
    ({"use_beam_search": False, "n": 2}, {}),
]


@pytest.mark.parametrize(("parameters", "fields"), CASES)
def test_parameters(parameters: dict[str, Any], fields: dict[str, Any]) -> None:
    [request] = completion_requests(CompletionParameters(prompt="x", **parameters))
    names = ("num_beams", "length_penalty", "early_stopping")
    set_fields = {name: value for field, value in request.ListFields() if (name := field.name) in names}
    assert set_fields == fields
