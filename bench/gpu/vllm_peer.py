"""vLLM's plain decoding of the same weights and prompts, in a process of its own, where vLLM is installed.

    python -m bench.gpu.vllm_peer FOLDER CONTEXT TOKENS DTYPE

Prints one JSON line: tokens per second after the first token, for each batch. Seen to run on a CPU alone: where there
was a GPU, there was no vLLM.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

from bench.gpu.setting import BATCHES, Setting

MEMORY = 0.5
"""Share of the GPU's memory; the bench has models of its own there."""


def is_installed() -> bool:
    return importlib.util.find_spec("vllm") is not None


def measure_vllm(folder: str, setting: Setting, seconds: float) -> dict[int, float] | str:
    """Tokens per second by batch, or why there are none."""
    arguments = [folder, str(setting.context), str(setting.tokens), setting.dtype]
    command = [sys.executable, "-m", "bench.gpu.vllm_peer", *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired:
        return f"vLLM took longer than {seconds:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"vLLM failed: {error.stderr.strip().splitlines()[-1:]}"
    return read_rates(ran.stdout)


def read_rates(printed: str) -> dict[int, float] | str:
    """From the line with the figures: vLLM prints its log to standard output as well, also after it."""
    found = [line for line in printed.splitlines() if line.startswith("{")]
    if not found:
        return "vLLM printed no figures"
    return {int(batch): rate for batch, rate in json.loads(found[-1]).items()}


def main() -> None:
    folder, context, tokens, dtype = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    vllm: Any = importlib.import_module("vllm")
    engine = vllm.LLM(
        model=folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=context + tokens + 1,
        gpu_memory_utilization=MEMORY,
        enable_prefix_caching=False,
    )

    def seconds(batch: int, count: int) -> float:
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": [1 + (place + row) % 7 for place in range(context)]} for row in range(batch)]
        started = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - started

    rates: dict[int, float] = {}
    for batch in BATCHES:
        seconds(batch, 2)
        rates[batch] = batch * tokens / max(seconds(batch, tokens + 1) - seconds(batch, 1), 1e-9)
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
