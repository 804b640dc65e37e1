"""Encoder-decoder models are served with the model's own logits, trees too, or refused at load, by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from specpair.caches.attention import Variant, attend
from specpair.caches.cache import token_bytes
from specpair.caches.holding import Segment
from specpair.errors import ModelRefusedError
from specpair.models import encoder_decoder_attention, model_cache
from specpair.models.batch import Batch
from specpair.models.load_runner import load_runner
from specpair.sequences.encoder_input import EncoderInput
from tests.services import engine_config
from tests.tiny_encoder_decoders import BART_SHAPE, T5_SHAPE, load_plain, make_encoder_decoder

T5 = Path(__file__).parents[4] / "models" / "t5"
KINDS = ["t5", "mt5", "bart"]


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"deterministic": True}, "--deterministic"),
        ({"runner": "fused"}, "--runner fused"),
        ({"runner": "native"}, "--runner native"),
        ({"quantization": "int8"}, "--quantization int8"),
        ({"head": "somewhere"}, "--head"),
    ],
)
def test_what_is_for_other_models_is_refused_by_name(changes: dict[str, Any], flag: str, tmp_path: Path) -> None:
    folder = make_encoder_decoder(tmp_path)
    with pytest.raises(ModelRefusedError, match=f"encoder-decoder model, for which {flag} is not supported"):
        load_runner(engine_config(folder, **changes))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(hf.UMT5Config, T5_SHAPE), (hf.M2M100Config, BART_SHAPE), (hf.SwitchTransformersConfig, T5_SHAPE)],
)
def test_models_built_otherwise_are_refused_by_name(kind: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    config = kind(**{**settings, "vocab_size": 64})
    hf.AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelRefusedError, match=config.model_type):
        load_runner(engine_config(tmp_path))


@pytest.mark.parametrize("kind", [hf.PegasusConfig, hf.MBartConfig])
def test_models_built_like_bart_are_served(kind: Any, tmp_path: Path) -> None:
    hf.AutoModelForSeq2SeqLM.from_config(kind(**{**BART_SHAPE, "vocab_size": 64})).save_pretrained(tmp_path)
    facts, _ = load_runner(engine_config(tmp_path))
    assert facts.encoder is not None and facts.encoder.max_encoder_len == BART_SHAPE["max_position_embeddings"]


def test_positions_that_were_never_learnt_are_refused(tmp_path: Path) -> None:
    folder = make_encoder_decoder(tmp_path, "bart")
    with pytest.raises(ModelRefusedError, match="--max-model-len is 65, but the model has 64"):
        load_runner(engine_config(folder, max_model_len=65))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_attention_is_noticed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check's own check: an attention without its mask, and without its bias, does not get past it."""

    def unmasked(query: Any, keys: Any, values: Any, mask: Any, variant: Variant) -> torch.Tensor:
        return attend(query, keys, values, None, variant)

    folder = make_encoder_decoder(tmp_path, kind)
    monkeypatch.setattr(encoder_decoder_attention, "attend", unmasked)
    with pytest.raises(ModelRefusedError, match="logits through the cache differ"):
        load_runner(engine_config(folder))


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_path_of_a_tree_has_the_logits_of_its_own_text(kind: str, cache: str, tmp_path: Path) -> None:
    folder = make_encoder_decoder(tmp_path, kind)
    _, runner = load_runner(engine_config(folder, cache=cache))
    model, read, prompt = load_plain(folder), EncoderInput((5, 9, 33, 2)), [2, 7, 11]
    tree, parents = [20, 21, 22, 23, 24], [-1, 0, -1, 2, 1]
    holding = runner.cache.open([])
    runner.cache.append(holding, len(prompt))
    prefill = Batch.of_chains([Segment(holding, 0, len(prompt))], prompt, [0])
    runner.forward(with_input(prefill, read))
    runner.cache.append(holding, len(tree))
    segment = Segment(holding, len(prompt), len(tree))
    batch = Batch.of_trees([segment], tree, [len(tree)], [None if parent < 0 else parent for parent in parents])
    logits = runner.forward(with_input(batch, read)).logits
    paths: list[list[int]] = []
    for token, parent in zip(tree, parents, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    for row, path in zip(logits, paths, strict=True):
        with torch.inference_mode():
            plain = model(
                input_ids=torch.tensor([list(read.token_ids)]), decoder_input_ids=torch.tensor([[*prompt, *path]])
            ).logits[0, -1]
        assert torch.allclose(row, plain, atol=1e-3 * float(plain.abs().max()))


def with_input(batch: Batch, read: EncoderInput) -> Batch:
    batch.encoder_inputs.append(read)
    return batch


def test_bfloat16_is_served() -> None:
    facts, runner = load_runner(engine_config(T5 / "target", dtype="bfloat16", cache="paged"))
    assert facts.dtype is torch.bfloat16 and facts.eos_token_ids == [1]
    assert runner.cache.free_block_count == runner.cache.block_count


def test_the_cache_leaves_room_for_what_encoders_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a memory for twice what all sequences could hold, and for less than that."""
    config = engine_config(T5 / "target", dtype="float32", max_num_seqs=4)
    facts, _ = load_runner(config)
    token, longest = token_bytes(facts.layers, facts.dtype), facts.max_model_len
    for memory, blocks in ((8 * longest * token, 4 * longest // 4), (5 * longest * token, longest // 4)):
        monkeypatch.setattr(model_cache, "cache_bytes", lambda *_, memory=memory: memory)
        assert model_cache.choose_block_count(config, facts) == blocks
    monkeypatch.setattr(model_cache, "cache_bytes", lambda *_: 4 * longest * token)
    with pytest.raises(ModelRefusedError, match="--max-num-seqs"):
        model_cache.choose_block_count(config, facts)
