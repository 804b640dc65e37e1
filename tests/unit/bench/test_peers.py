"""`transformers` as the bench counts it, and the bench as a whole, on tiny models."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.case import Case, Peer
from bench.transformers_model import TransformersModel
from specpair.named_models import BUNDLED, resolve_model
from tests.tiny_models import generate_greedily, load_plain, make_model, make_variation

ROOT = Path(__file__).parents[3]
VOCAB_SIZE = 4096
PROMPT = [5, 17, 300, 4, 9, 42, 7, 8]
COUNT = 24


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny pair with the bundled tokenizer."""
    folder = tmp_path_factory.mktemp("pair")
    target = make_model(folder / "tiny-target", vocab_size=VOCAB_SIZE)
    draft = make_variation(folder / "tiny-draft", target, spread=0.2)
    for model in (target, draft):
        shutil.copy(Path(resolve_model(BUNDLED, "target")) / "tokenizer.json", model)
    return target, draft


@pytest.fixture(scope="module")
def model(pair: tuple[Path, Path]) -> TransformersModel:
    return TransformersModel(str(pair[0]), str(pair[1]), "float32", "cpu")


def case(peer: Peer, k: int | None = None, temperature: float = 0.0) -> Case:
    return Case(peer=peer, temperature=temperature, num_speculative_tokens=k)


def test_generate_counts_a_pass_for_each_token(pair: tuple[Path, Path], model: TransformersModel) -> None:
    output = model.generate(case(Peer.GENERATE), [PROMPT, PROMPT[::-1]], COUNT, seed=0)
    plain = load_plain(pair[0])
    assert output.token_ids == [generate_greedily(plain, prompt, COUNT) for prompt in (PROMPT, PROMPT[::-1])]
    assert output.tokens == output.counts.rounds == 2 * (COUNT - 1)
    assert output.counts.drafted == 0
    assert 0 < output.counts.verify_seconds < output.output_seconds


@pytest.mark.parametrize("k", [1, 3, None])
def test_assisted_generation_counts_its_proposals(model: TransformersModel, k: int | None) -> None:
    output = model.generate(case(Peer.ASSISTED, k), [PROMPT], COUNT, seed=0)
    counts = output.counts
    assert output.token_ids == model.generate(case(Peer.GENERATE), [PROMPT], COUNT, seed=0).token_ids
    assert output.tokens == counts.accepted + counts.rounds
    assert counts.accepted == sum(counts.accepted_per_position) <= counts.drafted == sum(counts.drafted_per_position)
    assert k is None or len(counts.drafted_per_position) == k
    assert counts.drafted_per_position[0] <= counts.rounds
    assert counts.draft_seconds > 0


def test_outputs_have_the_length_that_is_asked_for(
    pair: tuple[Path, Path], model: TransformersModel, tmp_path: Path
) -> None:
    """Whatever ends a text for the model itself."""
    expected = model.generate(case(Peer.GENERATE), [PROMPT], COUNT, seed=0).token_ids
    target = shutil.copytree(pair[0], tmp_path / "target")
    (target / "generation_config.json").write_text(json.dumps({"eos_token_id": expected[0][3]}))
    ending = TransformersModel(str(target), str(pair[1]), "float32", "cpu")
    assert ending.generate(case(Peer.GENERATE), [PROMPT], COUNT, seed=0).token_ids == expected
    assert ending.generate(case(Peer.ASSISTED, 2), [PROMPT], COUNT, seed=0).token_ids == expected


def test_sampling_is_seeded_and_from_the_whole_distribution(model: TransformersModel) -> None:
    """The library's own default keeps the 50 likeliest tokens; this pair's distributions are nearly flat."""
    hot = case(Peer.GENERATE, temperature=5.0)
    one, again, other = (model.generate(hot, [PROMPT], COUNT, seed=seed).token_ids for seed in (1, 1, 2))
    assert one == again != other
    first = {model.generate(hot, [PROMPT], 2, seed=seed).token_ids[0][0] for seed in range(80)}
    assert len(first) > 50


@pytest.mark.few_cases()
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bench_runs_from_end_to_end(pair: tuple[Path, Path]) -> None:
    """All three processes and transformers beside them; nothing is saved."""
    before = sorted((ROOT / "bench" / "results").iterdir())
    words = ["--only", "comparison", "--target", str(pair[0]), "--draft", str(pair[1]), "--threads", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *words, "--temperatures", "0", "--k", "2", "--batches", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["comparison"]
    rows = {row["case"]: row for row in result["rows"]}
    names = ["generate", "assisted K=2", "assisted default", "specpair K=0", "specpair K=2", "specpair adaptive"]
    assert list(rows) == names
    assert {row["same_text"] for row in rows.values()} == {1.0}
    assert rows["specpair K=2"]["drafted_per_round"] > 1.5
    assert rows["specpair K=2"]["tokens_per_round"] == pytest.approx(rows["assisted K=2"]["tokens_per_round"], rel=0.3)
    assert {point["label"] for point in result["points"]} == {
        f"{peer}, T = 0, batch 1" for peer in ("assisted", "specpair")
    }
    assert result["machine"]["cores"] > 0
    assert str(pair[0]) not in done.stdout
    assert "speed" in done.stderr
    assert sorted((ROOT / "bench" / "results").iterdir()) == before
