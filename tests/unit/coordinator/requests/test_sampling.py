"""Whose value an option of sampling has: the request's, else the model's, else the usual one."""

from typing import Any

import pytest

from coordinator.requests.sampling import read_sampling
from specpair.errors import InvalidFieldError
from specpair.model_info import SamplingDefaults
from specpair.options import SamplingOptions
from specpair.v1 import coordinator_service_pb2 as pb
from tests.unit.coordinator.fake_sequences import model_info

WHOLE = {"temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.125, "repetition_penalty": 1.25}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def read(defaults: SamplingDefaults, fields: dict[str, Any] | None = None, **sampling: Any) -> SamplingOptions:
    message = pb.GenerateTokensRequest(sampling={"seed": 1, **sampling}, **(fields or {}))  # type: ignore[arg-type]
    return read_sampling(message, model_info(), defaults)


def test_a_request_gets_what_it_does_not_set() -> None:
    assert read(SamplingDefaults(**WHOLE)) == SamplingOptions(seed=1, **WHOLE)
    assert read(SamplingDefaults(top_p=0.75)) == SamplingOptions(seed=1, top_p=0.75)
    assert read(SamplingDefaults()) == SamplingOptions(seed=1)


@pytest.mark.parametrize("name", WHOLE)
def test_a_value_of_the_request_always_wins_also_one_that_changes_nothing(name: str) -> None:
    given = {name: NEUTRAL[name]}
    assert read(SamplingDefaults(**WHOLE), **given) == SamplingOptions(seed=1, **{**WHOLE, **given})


def test_a_greedy_request_stays_greedy_and_keeps_the_models_penalty() -> None:
    options = read(SamplingDefaults(**WHOLE), temperature=0.0)
    assert options.is_greedy and options.repetition_penalty == 1.25
    assert read(SamplingDefaults(temperature=0.0)).is_greedy


def test_a_beam_search_takes_nothing_of_the_model() -> None:
    defaults = SamplingDefaults(**WHOLE)
    assert read(defaults, {"num_beams": 2}) == SamplingOptions(seed=1, temperature=0.0)
    assert read(defaults, {"num_beams": 2}, temperature=1.0).temperature == 1.0  # which is refused by name


def test_a_refused_value_names_the_requests_field() -> None:
    with pytest.raises(InvalidFieldError, match=r"sampling.top_p: is 2"):
        read(SamplingDefaults(**WHOLE), top_p=2.0)


@pytest.mark.parametrize(("name", "value"), [("temperature", 101.0), ("top_p", 0.0), ("top_k", -1), ("min_p", 1.5)])
def test_defaults_have_the_limits_of_a_request(name: str, value: float) -> None:
    with pytest.raises(InvalidFieldError, match=f"sampling.{name}: is"):
        SamplingDefaults(**{name: value})  # type: ignore[arg-type]
