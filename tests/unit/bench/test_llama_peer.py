"""llama.cpp as a peer of the comparison: its cases, its place in the tables, and its texts."""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.case import Case, Peer, Weights
from bench.comparison import block_of, tables_of
from bench.comparison_rows import Row, rows_of
from bench.llama_options import LlamaOptions, add_llama_options, read_llama_options
from bench.llama_peer import keys_of, llama_peer
from bench.measurement import Counts, Measurement, Output, Turn
from bench.options import BenchOptions
from bench.partings import Parting, partings_of, said
from bench.progress import Progress
from tests.tiny_models import load_plain, make_model, make_variation

PLAIN_LLAMA = Case(peer=Peer.LLAMA, temperature=0.0, num_speculative_tokens=0, weights=Weights.BF16)
OPTIONS = BenchOptions(target="target", draft="draft", ks=(2,), batch_sizes=(1,), llama=LlamaOptions(server="server"))
PROMPT = [5, 17, 30, 4, 9, 42, 7, 8]
COUNT = 24
TOLERANCE = 0.15
"""In nats: llama.cpp rounds what it multiplies to bf16, which changes these flat distributions by up to 0.07."""


def turn(case: Case, speed: float, token_ids: list[int] | None = None) -> list[Measurement]:
    """One turn of 10 tokens after the first."""
    output = Output(
        token_ids=[token_ids or [1, 2, 3]],
        first_token_seconds=0.1,
        tokens=10,
        seconds=10 / speed,
        output_seconds=10 / speed,
        round_seconds=[],
        counts=Counts(rounds=10),
    )
    return [Measurement(turn=Turn(case=case, prompt=0, repetition=0), output=output)]


def rows(options: BenchOptions, speeds: dict[str, float]) -> dict[str, Row]:
    block = block_of(options, 0.0, 1)
    measurements = [one for case in block for one in turn(case, speeds.get(case.name, 10.0))]
    return {row.case: row for row in rows_of(block, measurements)}


def test_cases_are_plain_with_each_k_and_while_the_draft_is_sure() -> None:
    names = [case.name for case in block_of(OPTIONS, 0.0, 1) if case.peer is Peer.LLAMA]
    assert names == [f"llama.cpp {weights} {k}" for weights in ("bf16", "Q8_0") for k in ("K=0", "K=2", "while sure")]


def test_a_file_of_somebody_else_is_served_plain() -> None:
    options = replace(OPTIONS, llama=LlamaOptions(server="server", gguf="model.gguf"))
    assert keys_of(options) == [(Weights.FILE, 0)]


def test_without_a_server_there_are_no_cases_of_it() -> None:
    assert {case.peer for case in block_of(replace(OPTIONS, llama=None), 0.0, 1)} == set(Peer) - {
        Peer.LLAMA,
        Peer.VLLM,
        Peer.GENERATE_STATIC,
    }


def test_every_case_is_compared_with_the_fastest_of_each_kind_of_weights() -> None:
    found = rows(OPTIONS, {"llama.cpp bf16 K=2": 40.0, "llama.cpp Q8_0 K=0": 50.0, "specpair adaptive": 80.0})
    multiples = {weights: estimate.value for weights, estimate in found["specpair adaptive"].to_llama.items()}
    assert multiples == pytest.approx({Weights.BF16: 2.0, Weights.Q8_0: 1.6})


def test_adaptive_is_compared_with_the_best_fixed_k() -> None:
    found = rows(OPTIONS, {"specpair K=0": 20.0, "specpair K=2": 40.0, "specpair adaptive": 30.0})
    assert found["specpair adaptive"].to_fixed is not None
    assert found["specpair adaptive"].to_fixed.value == pytest.approx(0.75)
    assert found["llama.cpp bf16 K=0"].to_fixed is None


def test_tables_name_the_weights() -> None:
    options = replace(OPTIONS, has_transformers=False)
    best = tables_of(options, block_of(options, 0.0, 1), list(rows(options, {}).values()))[1]
    assert [heading for heading in best.columns if "llama" in heading] == [
        "to_llama_bf16|x best llama.cpp bf16",
        "to_llama_Q8_0|x best llama.cpp Q8_0",
    ]
    assert all(row["to_llama_bf16"].value == pytest.approx(1.0) for row in best.rows)


async def test_texts_part_where_their_tokens_first_differ_at_the_gap_that_llama_gives() -> None:
    asked: list[list[int]] = []

    async def log_probabilities(weights: Weights, prompt: list[int]) -> dict[int, float]:
        asked.append(prompt)
        return {3: -0.5, 9: -0.75}

    arena: Any = SimpleNamespace(prompts=[[7, 7]], llama=SimpleNamespace(log_probabilities=log_probabilities))
    measurements = [
        *turn(PLAIN_LLAMA, 1.0, [1, 2, 3, 4]),
        *turn(replace(PLAIN_LLAMA, num_speculative_tokens=2), 1.0, [5, 5, 5, 5]),
        *turn(PLAIN_LLAMA.plain(), 1.0, [1, 2, 9, 4]),
    ]
    assert await partings_of(arena, measurements) == [Parting(weights=Weights.BF16, prompt=0, at=2, gap=0.25)]
    assert asked == [[7, 7, 1, 2]]


def test_partings_are_said_of_their_own_weights() -> None:
    found = list(rows(OPTIONS, {}).values())
    partings = [Parting(weights=Weights.Q8_0, prompt=0, at=4, gap=None)]
    assert said(partings, found) == [
        "llama.cpp bf16 K=0: 100% of its greedy texts are those of specpair at K = 0",
        "llama.cpp Q8_0 K=0: 100% of its greedy texts are those of specpair at K = 0; one parts after 4 tokens at no"
        " near-tie",
    ]


def test_a_target_that_is_a_gguf_file_is_served_as_it_is() -> None:
    arguments = argparse.Namespace(llama_server="server", llama_weights=[Weights.BF16], llama_gguf=None)
    assert read_llama_options(arguments, "model.gguf") == LlamaOptions(
        server="server", weights=(Weights.BF16,), gguf="model.gguf"
    )
    other = read_llama_options(arguments, "folder")
    assert other is not None
    assert other.gguf is None


def test_a_file_that_is_no_gguf_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\3\4")
    parser = argparse.ArgumentParser()
    add_llama_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--llama-gguf", str(tmp_path / "model.gguf")])
    assert "is not a GGUF file" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.needs("llama-server")
async def test_llama_cpp_computes_the_distribution_of_the_checkpoint(tmp_path: Path) -> None:
    """So weights, positions and prompts arrive as they should, and the draft's too: some of its tokens are taken."""
    target = make_model(tmp_path / "target", hidden_size=64)
    draft = make_variation(tmp_path / "draft", target, spread=0.1)
    server = shutil.which("llama-server")
    assert server is not None
    llama = LlamaOptions(server=server, weights=(Weights.BF16,))
    options = replace(OPTIONS, target=str(target), draft=str(draft), max_tokens=COUNT, llama=llama)
    expected = load_plain(target).to(torch.bfloat16).float()
    async with llama_peer(options, Progress(), len(PROMPT)) as peer:
        for length in (1, 2, 4, len(PROMPT)):
            prompt = PROMPT[:length]
            wanted = expected(torch.tensor([prompt])).logits[0, -1].log_softmax(-1).tolist()
            found = await peer.log_probabilities(Weights.BF16, prompt)
            assert found == pytest.approx({token: wanted[token] for token in found}, abs=TOLERANCE)
        for k in (0, 2, None):
            output = await peer.generate(replace(PLAIN_LLAMA, num_speculative_tokens=k), [PROMPT], COUNT, seed=0)
            assert len(output.token_ids[0]) == COUNT
            assert output.tokens == output.counts.accepted + output.counts.rounds == COUNT - 1
            assert (output.counts.accepted > 0) is (k != 0)
