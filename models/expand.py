"""Make a checkpoint larger without changing what it computes: `python models/expand.py --size 100M`.

A pair whose models are small says little about speed, and one that is large is a download. An expansion has the
cost of a large model and the distribution of a small one, so acceptance stays real and cost becomes real. How each
part grows, for a source of width d and an expansion of width D:

- The residual stream is repeated k times, and what is left of D is zero. Norms then average over D channels, so
  their weights are multiplied by sqrt(k d / D) and eps by k d / D; beyond the first d channels they are zero.
  If it can, k makes that factor a power of two, so that even bfloat16 holds it exactly (768 / 256: k = 3, factor 1).
- New attention heads and feed-forward units go into columns of `o_proj` and `down_proj` that are zero. An old query
  head still reads its old key-value head, which is repeated if the new groups are smaller than the old.
- New layers come last; their `o_proj` and `down_proj` are zero, so they add nothing.
- Qwen3 also normalises queries and keys, by the same eps: `q_proj` and `k_proj` are multiplied by sqrt(k d / D) too,
  which gives the same normalised values.
- New tokens get logits of about -1e12, which is the probability zero in float32 and bfloat16: the last channel holds
  a constant, too small for norms and old tokens to notice, for which they have a huge negative weight.

Every other new weight is random. All products are computed in full: nothing knows that some factors are zero.
"""

import argparse
import hashlib
import itertools
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

HERE = Path(__file__).parent
WORK = HERE / "work"
BUNDLED = HERE / "bundled"
MODEL_TYPES = ("llama", "qwen2", "qwen3")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SHARD_BYTES = 2**30
# What the last channel holds where there are new tokens. Its square is lost beside eps.
CONSTANT = 2.0**-20
# The weight of new tokens for it: their logits are -2^40 over the root mean square of the residual stream.
BANISHMENT = 2.0**60
TOLERANCE = 1e-3
TEXT = "def read_lines(path):\n    with open(path) as file:\n        return [line.rstrip() for line in file]\n"
RANDOM_TOKENS = 32
COMPANIONS = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "generation_config.json",
)

Fill = Literal["random", "zero", "one"]


class ExpansionError(ValueError):
    """The source cannot be expanded to that shape, or what came of it computes something else."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model, by the names of its configuration. The size of a head is always the source's."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int | None = None
    """None: as many tokens as the source."""


PRESETS = {
    "100M": Shape(
        num_hidden_layers=12,
        hidden_size=768,
        intermediate_size=2816,
        num_attention_heads=12,
        num_key_value_heads=12,
    ),
    "300M": Shape(
        num_hidden_layers=24,
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
    ),
    # The layers of Llama-3.2 1B.
    "1B": Shape(
        num_hidden_layers=16,
        hidden_size=2048,
        intermediate_size=8192,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
    # The layers of Llama-3.2 3B: its matrices and cache, cut into heads of 64 instead of 24 and 8 heads of 128.
    "3B": Shape(
        num_hidden_layers=28,
        hidden_size=3072,
        intermediate_size=8192,
        num_attention_heads=48,
        num_key_value_heads=16,
    ),
}


class Axis(NamedTuple):
    """One dimension of a weight as it grows."""

    size: int
    """Of the expansion."""
    places: list[Tensor]
    """For each copy of the source's entries, where they go: indices `[old size]`."""


class Role(NamedTuple):
    """What a weight is for."""

    axes: tuple[str, ...]
    """Names of the axes of its dimensions; a bias has the first alone."""
    fill: Fill
    """What its new entries are."""


ROLES = {
    "embed_tokens": Role(("vocabulary", "residual"), "zero"),
    "input_layernorm": Role(("normed",), "zero"),
    "q_proj": Role(("query", "normed"), "random"),
    "k_proj": Role(("key", "normed"), "random"),
    "v_proj": Role(("key", "normed"), "random"),
    "q_norm": Role(("head",), "one"),
    "k_norm": Role(("head",), "one"),
    "o_proj": Role(("residual", "query"), "zero"),
    "post_attention_layernorm": Role(("normed",), "zero"),
    "gate_proj": Role(("unit", "normed"), "random"),
    "up_proj": Role(("unit", "normed"), "random"),
    "down_proj": Role(("residual", "unit"), "zero"),
    "norm": Role(("normed",), "zero"),
    "lm_head": Role(("vocabulary", "normed"), "random"),
}
NORMS = ("input_layernorm", "post_attention_layernorm", "norm")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything goes, and by what it is multiplied."""

    axes: dict[str, Axis]
    copies: int
    """How often the residual stream is repeated."""
    norm_scale: float
    scaled: tuple[str, ...]
    """The modules whose weights are multiplied by it."""
    eps: float
    has_new_tokens: bool


def is_power_of_two(number: float) -> bool:
    return math.frexp(number)[0] == 0.5


def shape_of(config: Any) -> Shape:
    """The shape of the model with this configuration."""
    return Shape(**{name: getattr(config, name) for name in Shape.__dataclass_fields__})


def head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def lay_out(config: Any, shape: Shape) -> Layout:
    """The growth from the model of `config` to `shape`. Raises ExpansionError if there is none."""
    check_kind(config)
    check_sizes(shape_of(config), shape)
    old, new = config.hidden_size, shape.hidden_size
    vocab_size = shape.vocab_size or config.vocab_size
    has_new_tokens = vocab_size > config.vocab_size
    copies = choose_copies(old, new - has_new_tokens, new)
    return Layout(
        axes={
            **head_axes(config, shape),
            "residual": Axis(new, [torch.arange(old) + i * old for i in range(copies)]),
            "normed": Axis(new, [torch.arange(old)]),
            "unit": Axis(shape.intermediate_size, [torch.arange(config.intermediate_size)]),
            "vocabulary": Axis(vocab_size, [torch.arange(config.vocab_size)]),
        },
        copies=copies,
        norm_scale=math.sqrt(copies * old / new),
        scaled=(*NORMS, "q_proj", "k_proj") if config.model_type == "qwen3" else NORMS,
        eps=config.rms_norm_eps * copies * old / new,
        has_new_tokens=has_new_tokens,
    )


def check_kind(config: Any) -> None:
    if config.model_type not in MODEL_TYPES:
        raise ExpansionError(f"{config.model_type} models cannot be expanded, only {', '.join(MODEL_TYPES)}")
    if getattr(config, "quantization_config", None):
        raise ExpansionError("quantised weights cannot be expanded")
    if not config.rms_norm_eps > 0:
        raise ExpansionError(f"rms_norm_eps is {config.rms_norm_eps}, not above 0")


def check_sizes(old: Shape, new: Shape) -> None:
    for name, size in asdict(new).items():
        if size is not None and size < getattr(old, name):
            raise ExpansionError(f"{name} is {size}, less than the source's {getattr(old, name)}")
    if new.num_attention_heads % new.num_key_value_heads:
        raise ExpansionError(
            f"{new.num_attention_heads} heads cannot share {new.num_key_value_heads} key-value heads evenly"
        )
    if (new.vocab_size or 0) > (old.vocab_size or 0) and new.hidden_size == old.hidden_size:
        raise ExpansionError(f"new tokens want a channel of their own: hidden_size must be above {old.hidden_size}")


def choose_copies(old: int, room: int, new: int) -> int:
    """The least number of copies of `old` channels within `room` whose norm scale is a power of two; else 1."""
    counts = range(1, room // old + 1)
    return next((count for count in counts if is_power_of_two(math.sqrt(count * old / new))), 1)


def head_axes(config: Any, shape: Shape) -> dict[str, Axis]:
    """The axes of queries, of keys and values, and within a head."""
    size = head_size(config)
    old_group = config.num_attention_heads // config.num_key_value_heads
    new_group = shape.num_attention_heads // shape.num_key_value_heads
    # New groups into which an old one is split; each of them gets its key-value head.
    parts = -(-old_group // new_group)
    if config.num_key_value_heads * parts > shape.num_key_value_heads:
        raise ExpansionError(
            f"{config.num_key_value_heads} groups of {old_group} heads do not fit"
            f" into {shape.num_key_value_heads} of {new_group}"
        )
    queries = []
    for head in range(config.num_attention_heads):
        group, index = divmod(head, old_group)
        queries.append((group * parts + index // new_group) * new_group + index % new_group)
    groups = range(config.num_key_value_heads)
    return {
        "query": Axis(shape.num_attention_heads * size, [rows_of_heads(queries, size)]),
        "key": Axis(
            shape.num_key_value_heads * size,
            [rows_of_heads((group * parts + part for group in groups), size) for part in range(parts)],
        ),
        "head": Axis(size, [torch.arange(size)]),
    }


def rows_of_heads(heads: Iterable[int], size: int) -> Tensor:
    """The rows `[heads * size]` of these heads in a projection."""
    return (torch.tensor(list(heads))[:, None] * size + torch.arange(size)).flatten()


def expanded_config(config: Any, shape: Shape) -> Any:
    """The configuration of the expansion. Raises ExpansionError if the library refuses it."""
    layout = lay_out(config, shape)
    values = config.to_dict() | {name: size for name, size in asdict(shape).items() if size is not None}
    values |= {"rms_norm_eps": layout.eps, "head_dim": head_size(config)}
    if values.get("layer_types"):
        added = shape.num_hidden_layers - config.num_hidden_layers
        values["layer_types"] = [*values["layer_types"], *["full_attention"] * added]
    try:
        return type(config)(**values)
    except (ValueError, StrictDataclassError) as error:
        raise ExpansionError(f"{config.model_type} refuses this shape: {error}") from error


def expand(
    weights: Mapping[str, Tensor], config: Any, shape: Shape, *, dtype: torch.dtype = torch.float32, seed: int = 0
) -> Iterator[tuple[str, Tensor]]:
    """The expansion's weights by name, one after the other, for the model of `expanded_config(config, shape)`.

    `weights` and `config` are the source's. The new random weights depend on `seed` and their names alone.
    Raises ExpansionError if the source cannot take that shape or has weights of an unknown kind.
    """
    layout = lay_out(config, shape)
    first_layer = []
    for name, old in weights.items():
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        new = grow(name, old.float(), layout, fresh(name, role_of(name).fill, layout, old.ndim, config, seed))
        if layout.has_new_tokens:
            banish_new_tokens(name, new, config, seed)
        yield name, new.to(dtype)
        if name.startswith("model.layers.0."):
            first_layer.append((name, old.ndim))
    for layer in range(config.num_hidden_layers, shape.num_hidden_layers):
        for template, dimensions in first_layer:
            name = template.replace(".0.", f".{layer}.", 1)
            fill = "one" if module_of(name) in NORMS else role_of(name).fill
            yield name, fresh(name, fill, layout, dimensions, config, seed).to(dtype)


def module_of(name: str) -> str:
    return name.split(".")[-2] if "." in name else name


def role_of(name: str) -> Role:
    """Raises ExpansionError for a weight that is none of a Llama, Qwen2 or Qwen3 model."""
    module = module_of(name)
    if module not in ROLES:
        raise ExpansionError(f"the source has a weight of an unknown kind: {name}")
    return ROLES[module]


def fresh(name: str, fill: Fill, layout: Layout, dimensions: int, config: Any, seed: int) -> Tensor:
    """A weight of the expansion, nothing of the source in it yet. `dimensions` is 1 for a norm or bias."""
    sizes = [layout.axes[axis].size for axis in role_of(name).axes[:dimensions]]
    if fill == "random":
        return random_weights(name, sizes, config, seed)
    return torch.full(sizes, 1.0 if fill == "one" else 0.0)


def random_weights(name: str, sizes: list[int], config: Any, seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]))
    return torch.randn(sizes, generator=generator).mul_(config.initializer_range)


def grow(name: str, old: Tensor, layout: Layout, new: Tensor) -> Tensor:
    """`new` with every copy of `old` put in its place, rescaled."""
    if module_of(name) in layout.scaled:
        old = old * layout.norm_scale
    for rows, *columns in itertools.product(*(layout.axes[axis].places for axis in role_of(name).axes[: old.ndim])):
        new[(rows[:, None], *columns) if columns else rows] = old
    return new


def banish_new_tokens(name: str, new: Tensor, config: Any, seed: int) -> None:
    """Makes the last channel a constant for which new tokens have a weight far below zero.

    The weights of old tokens for it, random or (where embeddings are tied) CONSTANT, make 1e-7 in a logit at most.
    """
    module, old_size = module_of(name), config.vocab_size
    if module == "norm":
        new[-1] = 1.0
    if module == "embed_tokens":
        new[old_size:] = random_weights(name, [len(new) - old_size, new.shape[1]], config, seed)
        new[:, -1] = CONSTANT
    if module == "lm_head" or (module == "embed_tokens" and config.tie_word_embeddings):
        new[old_size:, -1] = -BANISHMENT


# What follows reads and writes files.


def read_config(folder: Path) -> Any:
    """The configuration of the model in `folder`. Raises ExpansionError if there is none."""
    if not (folder / "config.json").is_file():
        raise ExpansionError(f"{folder} is no folder with a model")
    return AutoConfig.from_pretrained(folder)


def read_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ExpansionError(f"{folder} has no safetensors")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> int:
    """Saves the weights shard by shard as they come, so that no more than a shard is held; returns their bytes."""
    shards: list[list[str]] = []
    total = 0
    for shard in shards_of(weights):
        save_file(shard, folder / f"{len(shards)}.part", metadata={"format": "pt"})
        shards.append(list(shard))
        total += sum(map(byte_count, shard.values()))
    name_shards(folder, shards, total)
    return total


def shards_of(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """The weights in groups of at most SHARD_BYTES, or of one that is larger."""
    held: dict[str, Tensor] = {}
    for name, tensor in weights:
        if held and sum(map(byte_count, held.values())) + byte_count(tensor) > SHARD_BYTES:
            yield held
            held = {}
        held[name] = tensor
    yield held


def byte_count(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def name_shards(folder: Path, shards: list[list[str]], total: int) -> None:
    """Gives the parts the names under which transformers looks for them."""
    if len(shards) == 1:
        (folder / "0.part").rename(folder / "model.safetensors")
        return
    places = {}
    for index, names in enumerate(shards):
        file = f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
        (folder / f"{index}.part").rename(folder / file)
        places |= dict.fromkeys(names, file)
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2) + "\n")


def companions(folder: Path) -> list[Path]:
    """The files beside the weights that the expansion shares: tokenizer, chat template, generation defaults."""
    return sorted({file for pattern in COMPANIONS for file in folder.glob(pattern)})


def fingerprint(source: Path, shape: Shape, dtype: str, seed: int) -> str:
    """A hash of all that an expansion depends on, this script included."""
    digest = hashlib.sha256(json.dumps([asdict(shape), dtype, seed]).encode())
    for file in [Path(__file__), source / "config.json", *sorted(source.glob("*.safetensors")), *companions(source)]:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def read_recipe(folder: Path) -> dict[str, Any]:
    """What an expansion was made from and what it came out as; empty if there is none."""
    with suppress(OSError, json.JSONDecodeError):
        return json.loads((folder / "recipe.json").read_text())
    return {}


def make(source: Path, shape: Shape, output: Path, *, dtype: str = "float32", seed: int = 0) -> dict[str, Any]:
    """Writes the expansion to `output`, unless it is there already, and returns its recipe.

    It is written beside its place and takes it only after its logits were compared with the source's. Raises
    ExpansionError if they differ, and if `output` is a folder that is not an expansion.
    """
    config = read_config(source)
    layout = lay_out(config, shape)
    check_rounding(config, layout, dtype)
    key = fingerprint(source, shape, dtype, seed)
    if (recipe := read_recipe(output)).get("fingerprint") == key:
        return recipe
    if output.exists() and not recipe and any(output.iterdir()):
        raise ExpansionError(f"{output} holds something else; it is not overwritten")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as temporary:
        folder = Path(temporary, output.name)
        folder.mkdir()
        recipe = {
            "fingerprint": key,
            "source": source.resolve().name,
            "shape": asdict(shape),
            "dtype": dtype,
            "seed": seed,
            "vocab_size": layout.axes["vocabulary"].size,
            "new_tokens": layout.axes["vocabulary"].size - config.vocab_size,
            "copies": layout.copies,
            "norm_scale": layout.norm_scale,
            **write(folder, source, config, shape, dtype, seed),
            **compare(source, folder, dtype),
        }
        (folder / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
        (folder / "README.md").write_text(card(recipe))
        shutil.rmtree(output, ignore_errors=True)
        folder.rename(output)
    return recipe


def check_rounding(config: Any, layout: Layout, dtype: str) -> None:
    if dtype == "bfloat16" and not is_power_of_two(layout.norm_scale):
        width = config.hidden_size * (4 if layout.has_new_tokens else 1)
        raise ExpansionError(
            f"norms multiplied by {layout.norm_scale:.4g} would be rounded in bfloat16, which changes the"
            f" distribution: use float32, or a width that is a multiple of {width}"
        )


def write(folder: Path, source: Path, config: Any, shape: Shape, dtype: str, seed: int) -> dict[str, int]:
    """Saves the model with its tokenizer; returns the number of its parameters and the bytes of its weights."""
    expansion = expanded_config(config, shape)
    expansion.dtype = DTYPES[dtype]
    expansion.save_pretrained(folder)
    for file in companions(source):
        shutil.copy(file, folder)
    weights = expand(read_weights(source), config, shape, dtype=DTYPES[dtype], seed=seed)
    size = write_weights(folder, weights)
    return {"parameters": size // DTYPES[dtype].itemsize, "bytes": size}


def compare(source: Path, expansion: Path, dtype: str) -> dict[str, float]:
    """The largest difference of logits over a short text and random tokens, computed in float32.

    The source's weights are first rounded to `dtype`. Raises ExpansionError above TOLERANCE, and if a new
    token has any probability.
    """
    ids = comparison_ids(source)
    expected, actual = logits(source, ids, DTYPES[dtype]), logits(expansion, ids, DTYPES[dtype])
    old_size = expected.shape[-1]
    new_mass = actual.softmax(-1)[:, old_size:].sum(-1).max().item()
    difference = (actual[:, :old_size] - expected).abs().max().item()
    if not difference <= TOLERANCE or new_mass != 0:
        raise ExpansionError(
            f"the expansion computes something else: its logits differ by up to {difference:.2g}"
            f" ({TOLERANCE:g} is tolerated), and its new tokens have the probability {new_mass:.2g}"
        )
    return {"largest_logit_difference": difference}


def comparison_ids(source: Path) -> Tensor:
    """`[1, length]`: a text if there is a tokenizer, and random tokens."""
    ids: list[int] = []
    if (source / "tokenizer.json").is_file():
        ids = AutoTokenizer.from_pretrained(source)(TEXT)["input_ids"]
    vocab_size = read_config(source).vocab_size
    drawn = torch.randint(vocab_size, (RANDOM_TOKENS,), generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.tensor(ids, dtype=torch.long), drawn])[None]


@torch.inference_mode()
def logits(folder: Path, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """`[length, vocabulary]` in float32, by weights that are rounded to `dtype`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for parameter in cast(torch.nn.Module, model).parameters():
        parameter.copy_(parameter.to(dtype))
    return model(input_ids=ids, use_cache=False).logits[0]


def card(recipe: dict[str, Any]) -> str:
    """The README of an expansion."""
    shape, millions = recipe["shape"], recipe["parameters"] / 1e6
    return f"""---
library_name: transformers
---
# {recipe["source"]}, expanded to {millions:.0f} M parameters

**The same distribution as `{recipe["source"]}`, at the cost of {millions:.1f} M parameters.** An expansion, made by
specpair's `models/expand.py` to measure speed with. It knows no more than its source, whose licence it has.

| | |
|---|---|
| layers | {shape["num_hidden_layers"]} |
| width | {shape["hidden_size"]} |
| heads | {shape["num_attention_heads"]}, on {shape["num_key_value_heads"]} key-value heads |
| feed-forward units | {shape["intermediate_size"]} |
| tokens | {recipe["vocab_size"]}, the last {recipe["new_tokens"]} of them new and of probability zero |
| weights | {recipe["bytes"] / 1e9:.2f} GB in {recipe["dtype"]} |
| largest difference of logits | {recipe["largest_logit_difference"]:.1e}, in float32, over a text and random tokens |
"""


def expansion_name(source: Path, size: str, dtype: str, vocab_size: int | None) -> str:
    parts = [source.resolve().name, size.lower()]
    parts += [f"v{vocab_size}"] if vocab_size else []
    parts += [dtype] if dtype != "float32" else []
    return "-".join(parts)


def expanded_target(size: str, dtype: str = "float32", *, vocab_size: int | None = None) -> Path:
    """The folder of the bundled target in a preset size under `models/work`; written at the first call.

    Raises ExpansionError, and KeyError for a size that is none of PRESETS.
    """
    source = BUNDLED / "target"
    output = WORK / expansion_name(source, size, dtype, vocab_size)
    make(source, replace(PRESETS[size], vocab_size=vocab_size), output, dtype=dtype)
    return output


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = ", ".join(f"{name}: {s.num_hidden_layers} layers of {s.hidden_size}" for name, s in PRESETS.items())
    parser.add_argument("--size", choices=list(PRESETS), help=f"a shape to begin with ({sizes}); else the source's")
    parser.add_argument("--layers", type=int, dest="num_hidden_layers", metavar="N", help="how many instead")
    parser.add_argument("--hidden-size", type=int, metavar="N", help="width of the residual stream")
    parser.add_argument("--intermediate-size", type=int, metavar="N", help="feed-forward units of a layer")
    parser.add_argument("--heads", type=int, dest="num_attention_heads", metavar="N", help="query heads")
    parser.add_argument("--kv-heads", type=int, dest="num_key_value_heads", metavar="N", help="key-value heads")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="tokens; the new ones have probability zero")
    parser.add_argument(
        "--source", type=Path, default=BUNDLED / "target", metavar="FOLDER", help="default: the bundled target"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: models/work/SOURCE-SIZE")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32", help="of the weights (default float32)")
    parser.add_argument("--seed", type=int, default=0, help="of the new random weights (default 0)")
    arguments = parser.parse_args()
    if not arguments.size and not arguments.output:
        parser.error("say --size, or --output for a shape of your own")
    return arguments


def wanted_shape(arguments: argparse.Namespace) -> Shape:
    """The preset or the source's own shape, with what the options change."""
    begun = PRESETS[arguments.size] if arguments.size else shape_of(read_config(arguments.source))
    given = {name: getattr(arguments, name) for name in asdict(begun)}
    return replace(begun, **{name: size for name, size in given.items() if size is not None})


def main() -> None:
    arguments = parse_arguments()
    logging.disable_progress_bar()
    try:
        shape = wanted_shape(arguments)
        output = arguments.output or WORK / expansion_name(
            arguments.source, arguments.size, arguments.dtype, arguments.vocab_size
        )
        recipe = make(arguments.source, shape, output, dtype=arguments.dtype, seed=arguments.seed)
    except ExpansionError as error:
        raise SystemExit(f"error: {error}") from error
    print(
        f"{output}: {recipe['parameters'] / 1e6:.1f} M parameters, {recipe['bytes'] / 1e9:.2f} GB in {recipe['dtype']};"
        f" logits differ by at most {recipe['largest_logit_difference']:.1e} (tolerance {TOLERANCE:g})"
    )


if __name__ == "__main__":
    main()
