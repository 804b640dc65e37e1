"""The command line without services: help, versions, and one clear line for everything that is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from command.bundled import resolve_model
from command.failures import CommandError
from command.generation.request import completion_request
from command.generation.results import Completion, json_document, summary_line
from command.info import info_table, is_ready
from command.main import app
from coordinator.config import number_or_auto
from specpair.flags import listed
from specpair.options import Drafter, Encoding, Rule
from specpair.rpc.messages import encoding_to_proto, rule_to_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.drafter_pb2 import DRAFTER_NGRAM, DRAFTER_UNIFORM
from specpair.v1.logprobs_pb2 import TokenLogprobs

NOWHERE = "127.0.0.1:1"


def run(*arguments: str, stdin: str | bytes = "") -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["up", "serve", "generate", "info", "--version"]),
        (["up"], ["--draft", "--target", "--num-speculative-tokens", "--prompt", "--port"]),
        (["serve"], ["draft", "target", "coordinator"]),
        (
            ["serve", "draft"],
            ["--model", "--max-model-len", "--max-num-seqs", "SPECPAIR_MODEL", "50051"],
        ),
        (["serve", "target"], ["--dtype", "--max-num-batched-tokens", "--num-blocks", "50052"]),
        (["serve", "coordinator"], ["--draft-timeout", "--target-timeout", "SPECPAIR_TARGET", "50050"]),
        (["generate"], ["--temperature", "--rule", "--stop", "--json", "--chat", "SPECPAIR_ADDRESS", "LOSSY"]),
        (["info"], ["--json", "--address"]),
    ],
)
def test_help_names_the_options(arguments: list[str], expected: list[str]) -> None:
    status, stdout, _ = run(*arguments, "--help")
    assert status == 0
    assert [word for word in expected if word not in stdout] == []


def test_the_version() -> None:
    status, stdout, _ = run("--version")
    assert status == 0 and stdout.startswith("specpair ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "x", "--max-tokens", "-1"], "--max-tokens: is -1; it must be between 0 and 4294967295"),
        (["generate", "x", "--seed", "-1"], "--seed: is -1"),
        (["generate", "x", "--top-k", "-1"], "--top-k: is -1"),
        (["generate", "x", "--num-speculative-tokens", "-1"], "--num-speculative-tokens: is -1"),
        (["generate", "x", "--stop-token-id", "-1"], "--stop-token-id: is -1"),
        (["generate", "x", "--banned-token-id", "4294967296"], "--banned-token-id: is 4294967296"),
        (["generate", "x", "--n", "-1"], "--n: is -1"),
        (["generate", "x", "--logit-bias", "5:1"], "--logit-bias: is '5:1'; it must be ID=BIAS, as in 42=-1.5"),
        (["generate", "x", "--logit-bias", "-5=1"], "--logit-bias: is -5"),
        (["serve", "draft", "--model", "m", "--port", "99999"], "port: is 99999; it must be between 0 and 65535"),
        (["serve", "coordinator", "--target", "here"], "target: is 'here'; it must be host:port"),
        (["serve", "coordinator", "--num-speculative-tokens", "17"], "num_speculative_tokens: is 17"),
    ],
)
def test_a_wrong_value_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    status, stdout, stderr = run(*arguments)
    assert status == 2 and stdout == ""
    assert stderr.startswith(f"specpair: {message}") and stderr.count("\n") == 1


def test_the_number_of_proposed_tokens_is_a_number_or_auto() -> None:
    assert [number_or_auto(text) for text in ("auto", "0", "5")] == [None, 0, 5]
    status, _, stderr = run("serve", "coordinator", "--num-speculative-tokens", "some")
    assert status == 2 and "'some' is neither auto nor a number" in stderr
    status, stdout, _ = run("serve", "coordinator", "--help")
    assert status == 0 and "auto|N" in stdout


@pytest.mark.parametrize(
    ("text", "words"), [("", ()), ("a", ("a",)), ("coordinator,", ("coordinator",)), (" a ,b", ("a", "b"))]
)
def test_lists_are_words_between_commas(text: str, words: tuple[str, ...]) -> None:
    assert listed(text) == words


def test_input_that_is_no_text_is_refused() -> None:
    status, _, stderr = run("generate", "-", stdin=b"ab\xff")
    assert status == 2 and stderr == "specpair: prompt: is no valid UTF-8 at byte 2\n"


@pytest.mark.parametrize("arguments", [["generate", "x"], ["generate", "x", "--json"], ["info"], ["info", "--json"]])
def test_an_absent_coordinator_is_one_line_and_status_1(arguments: list[str]) -> None:
    status, stdout, stderr = run(*arguments, "--address", NOWHERE)
    assert status == 1 and stdout == ""
    assert stderr == f"specpair: the coordinator at {NOWHERE} cannot be reached; `specpair up` starts one\n"


def test_the_bundled_pair_is_found_or_its_absence_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resolve_model("some/model", "draft") == "some/model"
    monkeypatch.setattr("specpair.__file__", str(tmp_path / "specpair" / "__init__.py"))
    with pytest.raises(CommandError, match="not part of this installation"):
        resolve_model("bundled", "draft")
    folder = tmp_path / "models" / "bundled" / "draft"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert resolve_model("bundled", "draft") == str(folder)


def test_up_reports_a_service_that_dies_with_the_end_of_its_log(tmp_path: Path) -> None:
    """The target's folder is missing, so its process ends; the others are stopped, and nothing stays behind."""
    missing = str(tmp_path / "missing")
    result = subprocess.run(
        [sys.executable, "-m", "command", "up", "--draft", missing, "--target", missing, "--prompt", "x"],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[3],
    )
    assert result.returncode == 1
    assert "ended with status 1; the end of its log:" in result.stderr
    assert "Traceback" not in result.stderr


def finished() -> pb.GenerationSummary:
    speculation = pb.SpeculationSummary(
        round_count=5,
        draft_round_count=4,
        draft_token_count=16,
        accepted_token_count=12,
        drafted_per_position=[4, 4, 4, 4],
        accepted_per_position=[4, 3, 3, 2],
        acceptance_rate=0.75,
        tokens_per_round=3.4,
        fallback_count=1,
        rule=sampling_pb2.ACCEPTANCE_RULE_TOKEN,
        lenience=1.0,
        drafter=DRAFTER_NGRAM,
    )
    return pb.GenerationSummary(
        finish_reason=pb.FINISH_REASON_STOP,
        prompt_token_count=7,
        completion_token_count=18,
        seed=2**64 - 1,
        speculation=speculation,
        time_to_first_token_us=12_300,
        total_time_us=500_000,
    )


def completed(*responses: pb.GenerateTokensResponse, n: int = 1) -> Completion:
    completion = Completion(n)
    for response in responses:
        completion.add(response)
    assert completion.is_finished
    return completion


def test_the_json_document() -> None:
    rounds = [
        pb.GenerateTokensResponse(text="tä", tokens=[{"id": 1}]),  # type: ignore[list-item]
        pb.GenerateTokensResponse(text="xt", tokens=[{"id": 2}], summary=finished()),  # type: ignore[list-item]
    ]
    document = json.loads(json_document(completed(*rounds)))
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 18, "total_tokens": 25}
    (choice,) = document["choices"]
    assert (choice["index"], choice["text"], choice["token_ids"]) == (0, "täxt", [1, 2])
    assert choice["finish_reason"] == "stop" and choice["seed"] == 2**64 - 1
    assert choice["metrics"]["tokens_per_second"] == 36.0
    decoding = choice["metrics"]["speculative_decoding"]
    assert (decoding["num_drafts"], decoding["num_draft_tokens"], decoding["num_accepted_tokens"]) == (4, 16, 12)
    assert decoding["num_accepted_tokens_per_pos"] == [4, 3, 3, 2]
    assert (decoding["acceptance_rate"], decoding["tokens_per_round"]) == (0.75, 3.4)
    assert (decoding["num_fallbacks"], decoding["rule"]) == (1, "token")
    assert (decoding["lenience"], decoding["lossy"]) == (1.0, False)
    assert (decoding["drafter"], decoding["adaptive"]) == ("ngram", False)
    assert not {"prompt", "logprobs", "cumulative_logprob"} & {*document, *choice}


def test_the_json_document_of_several_outputs_with_logprobs() -> None:
    def token(token_id: int, logprob: float) -> pb.GeneratedToken:
        entry = TokenLogprobs(logprob=logprob, top_token_ids=[9], top_logprobs=[-0.5])
        return pb.GeneratedToken(id=token_id, text="t", logprobs=entry)

    summary = finished()
    summary.cumulative_logprob = -2.0
    prompt = [pb.GeneratedToken(id=5), token(6, -3.0)]
    completion = completed(
        pb.GenerateTokensResponse(choice_index=1, tokens=[token(2, -2.0)], prompt_tokens=prompt, summary=summary),
        pb.GenerateTokensResponse(choice_index=0, tokens=[token(1, -1.0)], summary=summary),
        n=2,
    )
    document = json.loads(json_document(completion))
    assert [choice["token_ids"] for choice in document["choices"]] == [[1], [2]]
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 36, "total_tokens": 43}
    top = [{"token_id": 9, "logprob": -0.5}]
    assert document["choices"][1]["logprobs"] == [
        {"token": "t", "token_id": 2, "logprob": -2.0, "top_logprobs": top},
    ]
    assert document["choices"][1]["cumulative_logprob"] == -2.0
    assert document["prompt"]["token_ids"] == [5, 6]
    assert document["prompt"]["logprobs"] == [
        None,
        {"token": "t", "token_id": 6, "logprob": -3.0, "top_logprobs": top},
    ]


def test_the_summary_line() -> None:
    line = summary_line(finished())
    parts = [
        "18 tokens in 0.50 s",
        "36.0 tokens/s",
        "12.3 ms",
        "75.0% (12 of 16)",
        "3.40 tokens",
        "drafter ngram",
        "1 of 5 rounds",
    ]
    assert [part for part in parts if part not in line] == []
    assert "LOSSY" not in line and "logprob" not in line


def test_a_lossy_output_is_called_so_before_all_else() -> None:
    summary = finished()
    summary.speculation.lenience, summary.speculation.lossy = 0.3, True
    summary.cumulative_logprob = -9.0
    line = summary_line(summary)
    assert line.startswith("LOSSY: lenience 0.3 · 18 tokens")
    assert "mean logprob -0.500" in line


def test_an_output_that_was_resumed_says_so() -> None:
    summary = finished()
    summary.resumed_token_count = 7
    assert summary_line(summary).startswith("coordinator lost, resumed behind 7 tokens: since then · 18 tokens in")


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


def shown(pair: pb.GetPairInfoResponse) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(info_table(pair, NOWHERE))
    return capture.get()


def test_the_table_shows_what_proposes_and_no_model_where_there_is_none() -> None:
    model = {"model_name": "tiny", "architecture": "LlamaForCausalLM", "vocab_size": 64}
    pair = pb.GetPairInfoResponse(
        draft={"drafters": [DRAFTER_NGRAM, DRAFTER_UNIFORM, 99]},  # type: ignore[typeddict-item]
        target=model,  # type: ignore[arg-type]
        max_num_speculative_tokens=16,
    )
    table = shown(pair)
    assert "ngram, uniform" in table and "an adaptive number of tokens proposed per" in table
    assert table.count("vocabulary") == 1
    pair.num_speculative_tokens = 0
    assert "0 tokens proposed per round" in shown(pair)


def test_a_pair_is_ready_only_with_both_models() -> None:
    pair = pb.GetPairInfoResponse(draft={}, target={})
    assert is_ready(pair)
    pair.ClearField("draft")
    assert not is_ready(pair)


def test_the_summary_says_when_adaptive_k_proposed_nothing() -> None:
    summary = finished()
    assert "acceptance rate 75.0% (12 of 16)" in summary_line(summary)
    summary.speculation.draft_token_count = 0
    assert "acceptance" not in summary_line(summary) and "no tokens proposed" not in summary_line(summary)
    summary.speculation.adaptive = True
    assert "no tokens proposed" in summary_line(summary)
