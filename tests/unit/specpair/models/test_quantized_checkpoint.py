"""Checkpoints in transformers' quantisation formats are served as they are, or refused by name."""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from specpair.errors import ModelRefusedError
from specpair.models import quantized_checkpoint
from specpair.models.load_runner import load_runner
from specpair.models.loading import load
from specpair.models.quantized_checkpoint import FORMATS, QuantizedCheckpoint
from specpair.models.self_check import plain_logits
from tests.quantized_models import SHAPE, WEIGHTS, change_settings, save_quantized, write_quantized
from tests.services import engine_config
from tests.tiny_models import make_model

pytestmark = pytest.mark.filterwarnings("default")  # packages warn about themselves
CPU = torch.device("cpu")
IDS = torch.randint(64, (24,), generator=torch.Generator().manual_seed(0))

Save = Callable[[Path, Path], Path]


def written(kind: str) -> Save:
    return lambda folder, plain: write_quantized(folder, plain, kind)


def bits_and_bytes(**settings: Any) -> Save:
    return lambda folder, plain: save_quantized(folder, plain, hf.BitsAndBytesConfig(**settings))


def torch_ao(name: str) -> Save:
    def save(folder: Path, plain: Path) -> Path:
        import torchao.quantization as package  # pyright: ignore[reportMissingImports]

        return save_quantized(folder, plain, hf.TorchAoConfig(getattr(package, name)()))

    return save


PLAIN, FUSED = r"plain \(transformers\)", r"(fused \(packed\)|native \(compiled\))"
NF4: dict[str, Any] = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
FP4: dict[str, Any] = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "fp4",
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": torch.bfloat16,
}
COMPRESSED = "compressed-tensors"
SERVED = [
    ("fp8", written("fp8"), FUSED, 0.98, "accelerate"),
    (COMPRESSED, written("int8 compressed"), PLAIN, 0.98, COMPRESSED),
    (COMPRESSED, written("fp8 compressed"), PLAIN, 0.98, COMPRESSED),
    (COMPRESSED, written("int4 compressed"), FUSED, 0.75, COMPRESSED),
    ("bitsandbytes_8bit", bits_and_bytes(load_in_8bit=True), PLAIN, 0.98, "bitsandbytes"),
    ("bitsandbytes_8bit", bits_and_bytes(load_in_8bit=True, llm_int8_threshold=0.0), PLAIN, 0.98, "bitsandbytes"),
    ("bitsandbytes_4bit", bits_and_bytes(**NF4), PLAIN, 0.75, "bitsandbytes"),
    ("bitsandbytes_4bit", bits_and_bytes(**FP4), PLAIN, 0.75, "bitsandbytes"),
    ("torchao", torch_ao("Int8WeightOnlyConfig"), PLAIN, 0.98, "torchao"),
    ("torchao", torch_ao("Int8DynamicActivationInt8WeightConfig"), PLAIN, 0.98, "torchao"),
    ("torchao", torch_ao("Float8WeightOnlyConfig"), PLAIN, 0.98, "torchao"),
    ("gptq", written("gptq"), PLAIN, 0.75, "gptqmodel"),
    ("awq", written("awq"), PLAIN, 0.75, "gptqmodel"),
    ("auto-round", written("auto-round"), PLAIN, 0.75, "auto-round"),
]
"""Format, how a checkpoint is made, the runner, the least correlation with the plain model's logits, what it needs."""
CASES = [pytest.param(*row[:-1], marks=pytest.mark.needs(row[-1]), id=f"{i} {row[0]}") for i, row in enumerate(SERVED)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("plain") / "model", seed=3, **SHAPE)


@pytest.mark.parametrize(("name", "save", "description", "likeness"), CASES)
def test_served_as_it_is(
    name: str, save: Save, description: str, likeness: float, plain: Path, tmp_path: Path, caplog: Any
) -> None:
    folder = save(tmp_path / "model", plain)
    caplog.set_level(logging.INFO)
    facts, _ = load_runner(engine_config(folder, dtype="auto"))
    assert facts.quantization == name
    assert re.search(f"{description}, {name} weights", caplog.text)
    reference = load(engine_config(plain))
    assert facts.parameter_count == reference.facts.parameter_count
    logits = [plain_logits(model, IDS) for model in (load(engine_config(folder, dtype="auto")), reference)]
    assert torch.corrcoef(torch.stack([part.flatten() for part in logits]))[0, 1] > likeness


@pytest.mark.parametrize(("name", "save", "description", "likeness"), CASES)
def test_the_same_bits_in_every_company_if_deterministic(
    name: str, save: Save, description: str, likeness: float, plain: Path, tmp_path: Path
) -> None:
    """The check at load compares them."""
    facts, _ = load_runner(engine_config(save(tmp_path / "model", plain), dtype="auto", deterministic=True))
    assert facts.quantization == name


def test_every_format_of_transformers_is_known() -> None:
    assert FORMATS.keys() == AUTO_QUANTIZER_MAPPING.keys() - {"gguf"}


REFUSED = {
    "hqq": "hqq checkpoints are not served: transformers 5 does not read its saved weights",
    "quanto": "quanto checkpoints are not served: transformers 5 does not read its saved weights",
    "nvfp4": "nvfp4 checkpoints are not served: transformers 5 does not read its saved weights",
    "metal": "metal checkpoints are not served: it runs on Apple GPUs",
    "vptq": "vptq checkpoints need a GPU; the device is cpu",
    "fbgemm_fp8": "fbgemm_fp8 checkpoints need a GPU; the device is cpu",
    "fp3": "its quantisation format fp3 is not known",
    "": "its quantisation format has no name and is not known",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str, plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path, dirs_exist_ok=True)
    change_settings(tmp_path, quantization_config={"quant_method": name, "bits": 4})
    with pytest.raises(ModelRefusedError, match=REFUSED[name]):
        load_runner(engine_config(tmp_path))


@pytest.mark.parametrize("name", [name for name, served in FORMATS.items() if served.packages and not served.refused])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_checkpoint, "is_installed", lambda module: False)
    packages = " ".join(FORMATS[name].packages)
    with pytest.raises(ModelRefusedError, match=f"^{name} checkpoints need a package: pip install {packages}$"):
        QuantizedCheckpoint(name=name, options={}).refuse_unserved(torch.device("cuda"))


def test_quantized_keys_and_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_checkpoint, "is_installed", lambda module: True)
    checkpoint = QuantizedCheckpoint(name=COMPRESSED, options={"kv_cache_scheme": {"num_bits": 8}})
    with pytest.raises(ModelRefusedError, match="quantises keys and values"):
        checkpoint.refuse_unserved(CPU)


def test_a_format_with_a_type_of_its_own_is_not_served_in_another() -> None:
    checkpoint = QuantizedCheckpoint(name="torchao", options={})
    half, single = torch.bfloat16, torch.float32
    assert checkpoint.choose_dtype("auto", half, single) == checkpoint.choose_dtype("bfloat16", half, single) == half
    with pytest.raises(ModelRefusedError, match="--dtype is float32, but this torchao checkpoint computes in bfloat16"):
        checkpoint.choose_dtype("float32", half, single)


@pytest.mark.needs(COMPRESSED)
def test_quantized_products_are_not_fused(plain: Path, tmp_path: Path) -> None:
    folder = write_quantized(tmp_path / "model", plain, "int8 compressed")
    with pytest.raises(ModelRefusedError, match="--runner fused does not support"):
        load_runner(engine_config(folder, runner="fused"))


@pytest.mark.needs("accelerate")
@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("scale_inv", "mlp.down_proj.weight_scale has no place in the model"),
        ("norm.weight", "norm.weight is not in it"),
    ],
)
def test_a_checkpoint_that_is_not_read_whole_is_refused(
    lacking: str, message: str, plain: Path, tmp_path: Path
) -> None:
    folder = write_quantized(tmp_path / "model", plain, "fp8")
    tensors = load_file(folder / WEIGHTS)
    renamed = {name.replace("scale_inv", "scale") if "scale" in lacking else name: t for name, t in tensors.items()}
    kept = {name: tensor for name, tensor in renamed.items() if not name.endswith(lacking)}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ModelRefusedError, match=message):
        load_runner(engine_config(folder))


@pytest.mark.needs("accelerate")
def test_pickled_weights_are_refused(plain: Path, tmp_path: Path) -> None:
    folder = write_quantized(tmp_path / "model", plain, "fp8")
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelRefusedError, match="cannot be loaded"):
        load_runner(engine_config(folder))
