"""Options of the command line as a request."""

from pathlib import Path
from typing import Any

import pytest

from command.generation.request import completion_request
from specpair.errors import InvalidFieldError
from specpair.options import Drafter, Encoding, Rule
from specpair.rpc.messages import encoding_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.drafter_pb2 import DRAFTER_NGRAM


def test_what_an_encoder_reads_takes_the_place_of_the_prompt() -> None:
    assert completion_request(None, encoder_input="x") == pb.GenerateTokensRequest(encoder_text="x", sampling={})
    for prompt, encoder_input in ((None, None), ("a", "b")):
        with pytest.raises(InvalidFieldError, match="prompt"):
            completion_request(prompt, encoder_input=encoder_input)


def test_options_become_a_request() -> None:
    request = completion_request(
        "x",
        min_p=0.25,
        logit_bias=["5=-1.5", "7=2"],
        allowed_token_ids=[1, 2],
        stop_strings=["a"],
        seed=2**64 - 1,
        best_of=3,
        prompt_logprobs=0,
        echo=True,
        lenience=0.5,
        drafter=Drafter.NGRAM,
        rule=Rule.COUPLED,
        encoding=Encoding.DENSE,
        top_k=None,
    )
    sampling = sampling_pb2.SamplingOptions(
        min_p=0.25, logit_bias={5: -1.5, 7: 2.0}, allowed_token_ids=[1, 2], seed=2**64 - 1
    )
    assert request == pb.GenerateTokensRequest(
        text="x",
        sampling=sampling,
        stop_strings=["a"],
        best_of=3,
        prompt_logprobs=0,
        echo=True,
        lenience=0.5,
        drafter=DRAFTER_NGRAM,
        rule=rule_to_proto(Rule.COUPLED),
        encoding=encoding_to_proto(Encoding.DENSE),
    )


@pytest.mark.parametrize("name", ["json_schema", "grammar"])
def test_a_structure_is_a_file_or_itself(name: str, tmp_path: Path) -> None:
    text = '{"type": "integer"}' if name == "json_schema" else 'start: "a"'
    missing: dict[str, Any] = {name: "missing.txt"}
    path = tmp_path / "file"
    path.write_text(text)
    for value in (text, str(path)):
        given: dict[str, Any] = {name: value}
        request = completion_request("x", **given)
        assert getattr(request.structured_output, name) == text
    with pytest.raises(InvalidFieldError, match=r"no file 'missing\.txt'") as caught:
        completion_request("x", **missing)
    assert caught.value.metadata["field"] == "--" + name.replace("_", "-")


def test_an_output_has_one_structure_at_most() -> None:
    with pytest.raises(InvalidFieldError, match="second structure") as caught:
        completion_request("x", regex="a", choices=["a"])
    assert caught.value.metadata["field"] == "--choice"
