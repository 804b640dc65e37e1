"""The options of vLLM as a peer."""

import argparse
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASK_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class VllmOptions:
    """How vLLM is measured."""

    python: str
    """The interpreter of an environment that has it."""
    version: str
    dtype: str
    """Of all weights: a value of its `--dtype`."""


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("vLLM (docs/performance.md says how to install it)")
    group.add_argument(
        "--vllm",
        type=vllm_python,
        metavar="PYTHON",
        help="also compare with vLLM, of the environment of this interpreter: the same weights, plain and with the same"
        " draft",
    )
    group.add_argument(
        "--vllm-dtype",
        choices=("auto", "float32", "bfloat16"),
        metavar="TYPE",
        help="type of its weights: auto, the checkpoint's, float32 or bfloat16 (default: that of --dtype)",
    )


def vllm_python(text: str) -> tuple[str, str]:
    """The path of an interpreter, and the version of its vLLM. Raises ArgumentTypeError if it has none."""
    path = str(Path(text).absolute())
    command = [path, "-c", "import vllm; print(vllm.__version__)"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be run: {error}") from error
    if asked.returncode:
        raise argparse.ArgumentTypeError(f"{text} has no vLLM: {asked.stderr.strip().splitlines()[-1:]}")
    return path, asked.stdout.split()[-1]


def read_vllm_options(arguments: argparse.Namespace) -> VllmOptions | None:
    """None if vLLM is not measured."""
    if arguments.vllm is None:
        return None
    python, version = arguments.vllm
    return VllmOptions(python=python, version=version, dtype=arguments.vllm_dtype or arguments.dtype)
