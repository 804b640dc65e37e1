"""`python -m bench.gpu`: everything that is measured on a GPU, in one call of less than ten minutes.

    python -m bench.gpu --expand llama-3.2-1b              also llama-3.2-3b; 8b has no pair
    python -m bench.gpu --expand tiny --device cpu --quick the same code with tiny models, to see that it runs

Passes beside the time to read the weights once; plain decoding beside transformers, and vLLM where it is installed; the
steps of the bundled draft, drawn on the device; and the pair through its three processes, with K = 0, K = 4 and
adaptive K. Each part is printed when it is done. Writes bench/results/gpu-*.json.
"""

import argparse
import gc
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.gpu import chains, goals, pair, passes
from bench.gpu.setting import PAIRS, Clock, Setting, add_options, read_setting
from bench.gpu.vllm_peer import is_installed, measure_vllm
from bench.random_models import random_shape
from bench.report import Table, measured, rich_table, save, wide_console
from specpair.models.runner import Runner

PAIR_SECONDS = 180.0
"""The pair is begun only if so much time is left: it starts three processes and generates some hundred texts."""
VLLM_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    arguments = parser.parse_args()
    setting, clock = read_setting(arguments), Clock(60.0 * arguments.minutes)
    figures: dict[str, Any] = {"setting": setting}
    if setting.has_passes:
        with TemporaryDirectory() as folder:
            figures |= of_one_process(folder, setting, clock)
            if setting.has_peers and is_installed() and clock.allows("vLLM", VLLM_SECONDS):
                figures["vllm"] = measure_vllm(folder, setting, VLLM_SECONDS)
                clock.say(f"vLLM: {figures['vllm']}")
        keep(setting, figures)  # whatever happens to the pair
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()  # the processes of the pair have their own models
    if setting.has_pair and setting.shape in PAIRS and clock.allows("the pair", PAIR_SECONDS):
        figures["pair"] = pair.measure_pair(setting)
        show([pair.table(figures["pair"])])
    show([goals.table(figures)])
    figures["goals"] = list(goals.reached(figures))
    keep(setting, figures)
    if not setting.device.startswith("cuda"):
        print(json.dumps(measured(**figures)))


def keep(setting: Setting, figures: dict[str, Any]) -> None:
    """Writes the result, but for a trial, whose times say nothing."""
    if setting.device.startswith("cuda"):
        save(f"gpu-{setting.shape}{'' if setting.has_passes else '-pair'}", **figures)


def of_one_process(folder: str, setting: Setting, clock: Clock) -> dict[str, Any]:
    """Passes, plain decoding and steps of the draft. What they load is freed at the end."""
    device = torch.device(setting.device)
    clock.say("writing the model ...")
    read_bytes = random_shape(setting.shape, Path(folder), device, setting.dtype)
    bandwidth = passes.copied_bytes_per_second(device)
    floor = read_bytes / bandwidth
    clock.say("loading it twice ...")
    runners: dict[str, Runner] = {name: passes.load(folder, setting, name) for name in ("captured", "plain")}
    clock.say("passes ...")
    timed = list(passes.measure_passes(runners, setting, floor))
    show([passes.pass_table(timed, setting)])
    decoding: list[dict[str, Any]] = []
    if setting.has_peers:
        clock.say("plain decoding ...")
        decoding = list(passes.measure_decoding(runners["captured"], folder, setting))
        show([passes.decoding_table(decoding)])
    clock.say("steps of the draft ...")
    steps = list(chains.measure_chains(setting))
    show([chains.table(steps)])
    return {
        "weight_bytes": read_bytes,
        "bandwidth": bandwidth,
        "floor_seconds": floor,
        "runners": {name: runner.description for name, runner in runners.items()},
        "passes": timed,
        "decoding": decoding,
        "chains": steps,
    }


def show(tables: list[Table]) -> None:
    console = wide_console()
    for table in tables:
        console.print(rich_table(table))


if __name__ == "__main__":
    main()
