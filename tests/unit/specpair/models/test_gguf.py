"""A GGUF file is served as the model that it holds, with its own tokenizer and chat template; or refused by name."""

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf import dequantize, quantize
from torch import Tensor

from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import ModelRefusedError
from specpair.models import find_checkpoint, gguf_llama
from specpair.models.gguf_header import read_header
from specpair.models.gguf_reader import read_model, read_settings
from specpair.models.load_runner import load_runner
from specpair.models.loading import LoadedModel, load
from specpair.models.self_check import chunked_logits
from tests.services import engine_config
from tests.tiny_gguf import CHARACTERS, END, END_OF_TEXT, SPECIAL, TOKENS, converted, make_llama, write_gguf
from tests.tiny_models import load_plain

QUANTISED = [Type.Q8_0, Type.Q4_0, Type.Q4_1]
IDS = torch.randint(len(TOKENS), (2, 24), generator=torch.Generator().manual_seed(1))
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 32}  # fmt: skip


@pytest.fixture(params=["own reader", "reader of transformers"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Llamas have a reader of their own. Without it the one of transformers reads them, like all others."""
    if request.param == "reader of transformers":
        monkeypatch.setattr(gguf_llama, "FAMILY", ())


def tiny(folder: Path, type: Type = Type.F32, **changes: Any) -> Path:
    """A GGUF file of a tiny Llama, in a folder of its own."""
    return write_gguf(folder / "tiny.gguf", make_llama(folder / "source"), type, **changes)


def weights(loaded: LoadedModel, name: str) -> Tensor:
    return loaded.model.state_dict()[name]


def with_biases(folder: Path) -> Path:
    """The model with random biases where it has any, which are zero in a fresh one."""
    model = load_plain(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(3))
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def expected_logits(folder: Path) -> Tensor:
    return load_plain(folder)(IDS).logits


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("runner", ["plain", "fused"])
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_logits_are_those_of_the_model_that_was_converted(runner: str, is_tied: bool, tmp_path: Path) -> None:
    source = make_llama(tmp_path / "source", tie_word_embeddings=is_tied)
    file = write_gguf(tmp_path / "model.GGUF", source)
    _, served = load_runner(engine_config(file, runner=runner))
    assert torch.allclose(chunked_logits(served, IDS), expected_logits(source), atol=2e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_both_readers_give_the_same_configuration_and_weights(kind: str, tmp_path: Path) -> None:
    source = with_biases(make_llama(tmp_path / "source", kind))
    file = write_gguf(tmp_path / "model.gguf", source, Type.Q8_0)
    header = read_header(file)
    settings, theirs = gguf_llama.family_settings(header), read_settings(file)
    ours = settings.to_dict()
    different = {key: value for key, value in theirs.to_dict().items() if value != ours.get(key)}
    assert different.keys() <= {"_name_or_path", "_model_name_or_path", "unk_token_id"}, different
    expected = read_model(file, header, theirs, torch.float32, "eager").state_dict()
    actual = gguf_llama.family_weights(file, header, settings)
    assert actual.keys() == expected.keys() - {"lm_head.weight"}
    assert all(torch.equal(actual[name], expected[name]) for name in actual)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_other_architectures_are_read_too(kind: str, tmp_path: Path) -> None:
    source = with_biases(make_llama(tmp_path / "source", kind))
    facts, served = load_runner(engine_config(write_gguf(tmp_path / "model.gguf", source)))
    assert torch.allclose(chunked_logits(served, IDS), expected_logits(source), atol=2e-4)
    assert facts.architecture.lower().startswith(kind)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("type", QUANTISED)
@pytest.mark.parametrize("dtype", ["float32", "auto", "bfloat16"])
def test_quantised_weights_are_rounded_to_bfloat16_unless_float32_is_asked_for(
    dtype: str, type: Type, tmp_path: Path
) -> None:
    file = tiny(tmp_path, type)
    stored = converted(load_plain(tmp_path / "source"))["blk.1.ffn_up.weight"]
    exact = torch.from_numpy(dequantize(quantize(stored, type), type))
    wanted = exact if dtype == "float32" else exact.bfloat16().float()
    loaded = load(engine_config(file, dtype=dtype))
    assert torch.equal(weights(loaded, "model.layers.1.mlp.up_proj.weight").float(), wanted)
    assert loaded.facts.dtype == {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype, loaded.facts.dtype)
    assert not hasattr(loaded.model.config, "quantization_config")
    frequencies: Any = loaded.model.get_submodule("model.rotary_emb").inv_freq
    assert torch.equal(frequencies, load_plain(tmp_path / "source").model.rotary_emb.inv_freq)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("type", [Type.F32, Type.F16, Type.BF16])
def test_float_weights_keep_their_bits(type: Type, tmp_path: Path) -> None:
    file = tiny(tmp_path, type)
    stored = converted(load_plain(tmp_path / "source"))["token_embd.weight"]
    exact = torch.from_numpy(dequantize(quantize(stored, type), type))
    assert torch.equal(weights(load(engine_config(file, dtype="auto")), "model.embed_tokens.weight").float(), exact)


@pytest.mark.usefixtures("reader")
def test_scaled_frequencies_of_llama_3_are_used(tmp_path: Path) -> None:
    """The converter writes them as a tensor of factors, which transformers leaves out."""
    source = make_llama(tmp_path / "source", rope_parameters=LLAMA_3)
    scaled = load_plain(source).model.rotary_emb.inv_freq.numpy()
    usual = LLAMA_3["rope_theta"] ** -(np.arange(0, 8, 2) / 8)
    factors = (usual / scaled).astype(np.float32)
    assert factors.max() > 2
    file = write_gguf(tmp_path / "model.gguf", source, tensors={"rope_freqs.weight": factors})
    _, served = load_runner(engine_config(file))
    assert torch.allclose(chunked_logits(served, IDS), expected_logits(source), atol=2e-4)


def test_tokenizer_and_chat_template_are_the_files(tmp_path: Path) -> None:
    """What lies beside the file is not read: here a tokenizer and an adapter that would break everything."""
    file = tiny(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "adapter_config.json", "chat_template.jinja"):
        (tmp_path / name).write_text("{broken")
    files = load(engine_config(file)).facts.tokenizer
    assert files is not None
    tokenizer = Tokenizer(files)
    assert tokenizer.vocabulary() == dict(enumerate(TOKENS))
    ids = tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert [TOKENS[token] for token in ids] == [SPECIAL[1], *"user:", "\u0120", "hi", SPECIAL[2], SPECIAL[1]]
    assert tokenizer.encode("hi") == [TOKENS.index("hi")]
    assert tokenizer.decode([*ids, TOKENS.index("hi")]) == "user: hihi"


def test_digits_stand_alone_where_the_file_says_so(tmp_path: Path) -> None:
    """So three spaces before a digit are one token. With the split of GPT-2 the last space belongs to the digit."""
    found = {}
    for way in ("smollm", "gpt-2"):
        file = tiny(tmp_path / way, metadata={"tokenizer.ggml.pre": way})
        files = load(engine_config(file)).facts.tokenizer
        assert files is not None
        found[way] = [TOKENS[token] for token in Tokenizer(files).encode("   5")]
    assert found == {"smollm": ["\u0120\u0120\u0120", "5"], "gpt-2": ["\u0120\u0120", "\u0120", "5"]}


def test_a_file_without_a_known_tokenizer_is_served_by_token_ids(tmp_path: Path) -> None:
    file = tiny(tmp_path, metadata={"tokenizer.ggml.model": "unheard-of"})
    assert load(engine_config(file)).facts.tokenizer is None


def test_text_and_turn_each_end_an_output(tmp_path: Path) -> None:
    assert load(engine_config(tiny(tmp_path / "one"))).facts.eos_token_ids == [END]
    file = tiny(tmp_path / "two", metadata={"tokenizer.ggml.eot_token_id": END_OF_TEXT})
    assert load(engine_config(file)).facts.eos_token_ids == [END_OF_TEXT, END]


def test_clients_see_the_files_name_without_its_path(tmp_path: Path) -> None:
    assert load(engine_config(tiny(tmp_path))).facts.display_name == "tiny.gguf"


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("type", [Type.F32, Type.Q8_0])
def test_loading_draws_nothing_into_a_log(type: Type, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tiny(tmp_path, type)
    capfd.readouterr()
    load(engine_config(file, dtype="bfloat16"))
    assert capfd.readouterr() == ("", "")


def refusal(file: Path) -> str:
    """Why the file is refused: one line that names it."""
    with pytest.raises(ModelRefusedError) as refused:
        load(engine_config(file))
    assert str(file) in refused.value.message and "\n" not in refused.value.message
    return refused.value.message


VECTOR = np.zeros(32, dtype=np.float32)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown architecture": ({"metadata": {"general.architecture": "unheard-of"}}, "unheard-of is not supported"),
    "recurrent layers": ({"metadata": {"general.architecture": "lfm2"}}, "cannot be read"),
    "a missing tensor": ({"tensors": {"blk.0.ffn_up.weight": None}}, "has no model.layers.0.mlp.up_proj.weight"),
    "a tensor more": (
        {"tensors": {"blk.0.attn_q.bias": VECTOR}},
        "has a superfluous model.layers.0.self_attn.q_proj.bias",
    ),
    "a tensor that is not known": ({"tensors": {"blk.0.other.weight": VECTOR}}, "has a superfluous blk.0.other.weight"),
    "no embeddings": ({"tensors": {"token_embd.weight": None}}, "cannot be read"),
    "another width": ({"metadata": {"llama.feed_forward_length": 32}}, "size mismatch"),
    "no length": ({"metadata": {"llama.context_length": None}}, "does not say its llama.context_length"),
    "endless layers": ({"metadata": {"llama.block_count": 2**31}}, "it names 2147483648 layers"),
    "endless width": ({"metadata": {"llama.embedding_length": 2**30}}, "size mismatch"),
    "no heads": ({"metadata": {"llama.attention.head_count": 0}}, "cannot be read"),
    "half a rotation": ({"metadata": {"llama.rope.dimension_count": 4}}, "rotates 4 of 8 dimensions"),
    "scaled positions": (
        {"metadata": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}},
        "positions are scaled (yarn)",
    ),
    "factors of another size": ({"tensors": {"rope_freqs.weight": VECTOR}}, "no place for its rope_freqs.weight"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_by_name(case: str, tmp_path: Path) -> None:
    changes, reason = REFUSED[case]
    assert reason in refusal(tiny(tmp_path, **changes))


UNREAD: dict[str, dict[str, Any]] = {
    "a missing tensor": {"tensors": {"blk.0.ffn_up.weight": None}},
    "a tensor more": {"tensors": {"blk.0.attn_q.bias": VECTOR}},
    "another width": {"metadata": {"llama.feed_forward_length": 32}},
    "endless width": {"metadata": {"llama.embedding_length": 2**30}},
}


@pytest.mark.parametrize("case", UNREAD)
def test_transformers_leaves_no_weight_out_and_makes_none_up(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its reader is used: a weight that the file lacks would be random."""
    monkeypatch.setattr(gguf_llama, "FAMILY", ())
    assert "weights, but llama of its configuration" in refusal(tiny(tmp_path, **UNREAD[case]))


def test_a_weight_of_another_name_is_not_made_up_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many weights as there should be."""
    monkeypatch.setattr(gguf_llama, "FAMILY", ())
    changes = {"blk.0.attn_norm.weight": None, "blk.0.unheard_of.weight": VECTOR}
    assert "it has no model.layers.0.input_layernorm.weight" in refusal(tiny(tmp_path, tensors=changes))


def test_a_file_that_was_cut_off_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = tiny(tmp_path).read_bytes()
    file = tmp_path / "cut.gguf"
    for length in (0, 3, 4, 23, 24, 100, 1000, 5000, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert "cannot be read" in refusal(file) or "no GGUF file" in refusal(file)


def header(*entries: bytes, tensor_count: int = 0, version: int = 3, entry_count: int | None = None) -> bytes:
    entry_count = len(entries) if entry_count is None else entry_count
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, entry_count) + b"".join(entries)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def array(element: int, length: int) -> bytes:
    return text("key") + struct.pack("<IIQ", 9, element, length)


def tensor(name: str, *sizes: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


NUMBER = text("key") + struct.pack("<II", 4, 1)
FORGED = {
    "another format": (b"PK" + bytes(98), "does not begin with GGUF"),
    "another version": (header(version=9), "version 9"),
    "another byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "endless entries": (header(entry_count=2**60), "ends within its header"),
    "endless tensors": (header(tensor_count=2**60), "ends within its header"),
    "an endless string": (header(struct.pack("<Q", 2**63)), "ends within its header"),
    "an endless array of numbers": (header(array(4, 2**61)), "ends within its header"),
    "an endless array of strings": (header(array(8, 2**61)), "ends within its header"),
    "arrays of arrays": (header(array(9, 2**61)), "array of the type 9"),
    "a type that does not exist": (header(text("key") + struct.pack("<I", 99)), "unknown type 99"),
    "a key twice": (header(NUMBER, NUMBER), "'key' twice"),
    "a key that is no text": (header(struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<II", 4, 1)), "no text"),
    "no alignment": (header(text("general.alignment") + struct.pack("<II", 4, 0)), "alignment is 0"),
    "an endless tensor": (header(tensor("t", 2**40, 2**40), tensor_count=1, entry_count=0), "within the tensor 't'"),
    "a tensor far away": (header(tensor("t", 1, offset=2**63), tensor_count=1, entry_count=0), "within the tensor"),
    "a tensor twice": (header(tensor("t", 1), tensor("t", 1), tensor_count=2, entry_count=0), "'t' twice"),
    "a tensor of no type": (header(tensor("t", 1, kind=77), tensor_count=1, entry_count=0), "unknown type 77"),
    "half a block": (header(tensor("t", 16, kind=2), tensor_count=1, entry_count=0), "Q4_0 cannot have"),
    "nine dimensions": (header(tensor("t", *[1] * 9), tensor_count=1, entry_count=0), "9 dimensions"),
    "tensors in one place": (
        header(*(tensor(f"t{i}", 40) for i in range(2)), tensor_count=2, entry_count=0) + bytes(200),
        "overlap",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_file_is_refused_at_once(case: str, tmp_path: Path) -> None:
    data, reason = FORGED[case]
    file = tmp_path / "forged.gguf"
    file.write_bytes(data)
    assert reason in refusal(file)


def test_a_file_with_wrong_bytes_is_refused_or_served(tmp_path: Path) -> None:
    """Any byte of a header may be wrong: whatever the readers make of it, it is a refusal or a model."""
    whole = tiny(tmp_path).read_bytes()
    draw = np.random.default_rng(0)
    file = tmp_path / "wrong.gguf"
    refused = 0
    for place in draw.integers(0, 9000, size=40).tolist():
        file.write_bytes(whole[:place] + bytes(draw.integers(0, 256, size=4, dtype=np.uint8)) + whole[place + 4 :])
        try:
            load(engine_config(file))
        except ModelRefusedError as error:
            assert str(file) in error.message
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_reader_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_checkpoint, "find_spec", lambda name: None if name == package else find_spec(name))
    assert f"without {package}: install specpair[models]" in refusal(tiny(tmp_path))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent.gguf")


def test_the_alphabet_is_that_of_bytes() -> None:
    assert len(CHARACTERS) == 256
