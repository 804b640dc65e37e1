"""The options of llama.cpp as a peer."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from bench.case import Weights
from bench.llama_server import llama_server_program

GGUF = ".gguf"
MAGIC = b"GGUF"
WRITTEN = (Weights.BF16, Weights.Q8_0)


@dataclass(frozen=True, kw_only=True)
class LlamaOptions:
    """How llama.cpp is measured."""

    server: str
    """Path of llama-server."""
    weights: tuple[Weights, ...] = WRITTEN
    gguf: str | None = None
    """A file to serve instead of the target's weights, plain."""


def add_llama_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("llama.cpp (docs/performance.md says how to build it)")
    group.add_argument(
        "--llama-server",
        type=llama_server_program,
        metavar="PATH",
        help="also compare with this llama-server: the same weights, plain and with the same draft",
    )
    group.add_argument(
        "--llama-weights",
        nargs="+",
        choices=[weights.value for weights in WRITTEN],
        metavar="W",
        default=WRITTEN,
        help="how its weights are stored: bf16, Q8_0 (default: both)",
    )
    group.add_argument(
        "--llama-gguf",
        type=gguf_path,
        metavar="FILE",
        help="serve this file instead, plain: for a target that comes from it (default: a target that ends in .gguf)",
    )


def gguf_path(text: str) -> str:
    """Raises ArgumentTypeError if it is no GGUF file."""
    path = Path(text)
    if not path.is_file() or first_bytes(path, len(MAGIC)) != MAGIC:
        raise argparse.ArgumentTypeError(f"{text} is not a GGUF file")
    return str(path.absolute())


def first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as opened:
        return opened.read(count)


def read_llama_options(arguments: argparse.Namespace, target: str) -> LlamaOptions | None:
    """None if llama.cpp is not measured."""
    if arguments.llama_server is None:
        return None
    gguf = arguments.llama_gguf or (target if target.endswith(GGUF) else None)
    return LlamaOptions(server=arguments.llama_server, weights=tuple(map(Weights, arguments.llama_weights)), gguf=gguf)
