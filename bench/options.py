"""The options that all sections of the bench share."""

import argparse
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from bench.expansion import SIZES, Expansion, expansion_of
from bench.llama_options import GGUF, LlamaOptions, add_llama_options, read_llama_options
from bench.vllm_options import VllmOptions, add_vllm_options, read_vllm_options
from specpair.errors import SpecpairError
from specpair.named_models import BUNDLED, NAMES, resolve_model
from specpair.options import Rule

Dtype = Literal["auto", "float32", "bfloat16"]
Role = Literal["draft", "target"]
PAIRS = NAMES
"""Pairs with a name of their own; all but the bundled one hold conversations."""
SEED = 0
"""Seed of the order of turns; outputs are seeded by prompt and repetition."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """One run. All its sections measure the same pair with the same prompts and lengths."""

    target: str
    """Folder or Hugging Face id."""
    draft: str
    label: str = BUNDLED
    """Names the pair in titles and in the names of result files."""
    note: str | None = None
    """What a reader must know about the pair, such as that its target is an expansion."""
    dtype: Dtype = "auto"
    device: str = "auto"
    threads: int | None = None
    """OMP_NUM_THREADS of every process; None for the defaults that users get."""
    prompts: int = 4
    prompt_tokens: int = 128
    max_tokens: int = 64
    repetitions: int = 3
    ks: tuple[int, ...] = (1, 2, 3, 5, 8)
    temperatures: tuple[float, ...] = (0.0, 1.0)
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    drafters: tuple[str, ...] = ()
    """Of those that the draft service has, the ones that `bench.drafters` measures; all if empty."""
    rules: tuple[str, ...] = ()
    """The acceptance rules that `bench.trees` measures; all if empty."""
    is_quick: bool = False
    is_saved: bool = True
    """Results are saved under bench/results."""
    quantization: str | None = None
    """specpair: `--quantization` of the target service."""
    draft_quantization: str | None = None
    """The same of the draft service."""
    is_chat: bool = False
    """Prompts are questions in the target's chat template, each of its own length."""
    has_transformers: bool = True
    """`transformers` is compared too. It does not load a pair that holds conversations."""
    llama: LlamaOptions | None = None
    """llama.cpp as a peer; None if it is not measured."""
    vllm: VllmOptions | None = None
    """vLLM as a peer; None if it is not measured."""
    has_static_cache: bool = False
    """`transformers` generate is also measured with its static cache."""
    is_json: bool = False
    """Standard output gets only the JSON line."""
    service_flags: dict[str, object] = field(default_factory=dict)
    """Flags for `specpair serve`, for both model services."""
    draft_flags: dict[str, object] = field(default_factory=dict)
    """Flags for `specpair serve draft`, which override all others."""

    def described(self) -> dict[str, object]:
        """The description of the run in a result: the pair by its label, since paths differ between machines."""
        left_out = ("target", "draft", "llama", "vllm", "service_flags", "draft_flags", "is_json", "is_saved")
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def model_flags(self, role: Role) -> dict[str, object]:
        """Flags of `specpair serve <role>`. Tokens are drawn without the model's own options, as by peers."""
        model = self.draft if role == "draft" else self.target
        bits = self.draft_quantization if role == "draft" else self.quantization
        own = {"--model": model, "--dtype": self.dtype, "--device": self.device}
        flags = {**own, **({"--quantization": bits} if bits else {}), **self.service_flags}
        return {**flags, **(self.draft_flags if role == "draft" else {"--generation-config": "none"})}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every section."""
    pair = parser.add_argument_group("the pair")
    pair.add_argument(
        "--pair", choices=PAIRS, default=BUNDLED, help=f"a pair with a name: {', '.join(PAIRS)} (default {BUNDLED})"
    )
    pair.add_argument("--target", help="folder or Hugging Face id (default: the target of the pair)")
    pair.add_argument("--draft", help="folder or Hugging Face id (default: the draft of the pair)")
    pair.add_argument(
        "--expand",
        choices=SIZES,
        help="measure the bundled target at the cost of a larger model: its expansion, made at the first use; sizes"
        " named after Llama also have Llama's vocabulary",
    )
    pair.add_argument(
        "--dtype", default="auto", choices=("auto", "float32", "bfloat16"), help="type of all weights (default auto)"
    )
    pair.add_argument(
        "--device", default="auto", help="device of both models and of the peers: auto, cpu, cuda or cuda:N"
    )
    pair.add_argument("--quantization", metavar="BITS", help="specpair's target with such weights: int8, int4")
    pair.add_argument("--draft-quantization", metavar="BITS", help="specpair's draft with such weights")
    pair.add_argument("--threads", type=int, metavar="N", help="OMP_NUM_THREADS of every process (default: not set)")
    work = parser.add_argument_group("the work")
    work.add_argument("--prompts", type=positive, metavar="N", help="number of held-out prompts (default 4)")
    work.add_argument(
        "--prompt-tokens", type=positive, metavar="N", help="length of each prompt in tokens (default 128)"
    )
    work.add_argument("--max-tokens", type=above_one, metavar="N", help="tokens to generate per prompt (default 64)")
    work.add_argument("--repetitions", type=positive, metavar="N", help="turns per case and prompt (default 3)")
    work.add_argument("--k", type=positive, nargs="+", metavar="K", help="tokens per proposal (default 1 2 3 5 8)")
    work.add_argument("--temperatures", type=float, nargs="+", metavar="T", help="temperatures (default 0 1)")
    work.add_argument(
        "--batches", type=positive, nargs="+", metavar="B", help="numbers of requests at a time (default 1 4 16)"
    )
    work.add_argument("--drafters", nargs="+", metavar="NAME", help="bench.drafters: only these")
    work.add_argument("--rules", nargs="+", choices=list(Rule), metavar="RULE", help="bench.trees: only these")
    work.add_argument(
        "--static-cache",
        action="store_true",
        help="also measure transformers generate with its static cache, which on a GPU compiles the model",
    )
    work.add_argument(
        "--quick",
        action="store_true",
        help="run everything once, in a minute or two: checks that it runs; its figures mean nothing and are not saved",
    )
    work.add_argument("--without-transformers", action="store_true", help="do not compare with transformers")
    add_llama_options(parser)
    add_vllm_options(parser)
    parser.add_argument("--label", metavar="TEXT", help="the name of the result (default: made from the pair)")
    parser.add_argument(
        "--json", action="store_true", help="only the JSON line on standard output, tables on standard error"
    )
    parser.add_argument("--no-save", action="store_true", help="save nothing under bench/results")


def positive(text: str) -> int:
    """Raises ValueError unless it is a whole number above 0."""
    return at_least(1, text)


def above_one(text: str) -> int:
    """Raises ValueError unless it is a whole number above 1: speeds exclude the first token."""
    return at_least(2, text)


def at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise ValueError
    return number


def read_options(arguments: argparse.Namespace) -> BenchOptions:
    """The options of a command line. OMP_NUM_THREADS sets the threads of the children and of torch here."""
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    is_quick = arguments.quick
    if arguments.expand is not None and arguments.pair != BUNDLED:
        raise SystemExit("error: --expand is for the bundled pair")
    expansion = None if arguments.expand is None else expansion_of(arguments.expand, arguments.dtype)
    target = str(expansion.folder) if expansion else found(arguments.target or arguments.pair, "target")
    converses = arguments.pair != BUNDLED or target.endswith(GGUF)
    return BenchOptions(
        target=target,
        draft=found(arguments.draft or arguments.pair, "draft"),
        label=arguments.label or label_of(arguments, expansion),
        note=expansion and expansion.note,
        dtype=arguments.dtype,
        device=arguments.device,
        threads=arguments.threads,
        prompts=arguments.prompts or (1 if is_quick else 4),
        prompt_tokens=arguments.prompt_tokens or (32 if is_quick else 128),
        max_tokens=arguments.max_tokens or (12 if is_quick else 64),
        repetitions=arguments.repetitions or (1 if is_quick else 3),
        ks=tuple(arguments.k or ((1, 3) if is_quick else (1, 2, 3, 5, 8))),
        temperatures=tuple((0.0, 1.0) if arguments.temperatures is None else arguments.temperatures),
        batch_sizes=tuple(arguments.batches or ((1, 4) if is_quick else (1, 4, 16))),
        drafters=tuple(arguments.drafters or ()),
        rules=tuple(arguments.rules or ()),
        is_quick=is_quick,
        is_saved=not (is_quick or arguments.no_save),
        quantization=arguments.quantization,
        draft_quantization=arguments.draft_quantization,
        is_chat=converses,
        has_transformers=not converses and not arguments.without_transformers,
        llama=read_llama_options(arguments, target),
        vllm=read_vllm_options(arguments),
        has_static_cache=arguments.static_cache,
        is_json=arguments.json,
    )


def found(model: str, role: Role) -> str:
    """Where the model is; ends the program if a model with a name is not installed."""
    try:
        return resolve_model(model, role)
    except SpecpairError as error:
        raise SystemExit(f"error: {error}") from error


def label_of(arguments: argparse.Namespace, expansion: Expansion | None) -> str:
    """A name for the pair that is valid in file names, with what else was given about it."""
    pair = expansion.label if expansion else Path(arguments.target or arguments.pair).name.lower()
    device = arguments.device.replace(":", "")
    peers = [arguments.llama_server and "llama", arguments.vllm and "vllm"]
    details = [device not in ("auto", "cpu") and device, arguments.quantization, *peers]
    return "-".join([pair, *filter(None, details)])
