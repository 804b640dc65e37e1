"""The services under attack, all three in one process that reports what it holds.

`python -m tests.hostile.victim FOLDER` makes tiny models in the folder and serves them as in production, on ports of
the system's choice. It prints a line of JSON with its addresses, then one with what it holds for each line that it
reads, and ends with its input.
"""

import asyncio
import json
import logging
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import uvloop

from specpair.engine_config import EngineConfig
from tests.hostile.limits import MAX_LENGTH, MAX_PROPOSED, MOST_SEQUENCES, VOCABULARY
from tests.services import RunningModel, RunningPair, engine_config, running_pair
from tests.tiny_models import make_model, make_variation

TOKENIZER = Path(__file__).parents[2] / "models" / "bundled" / "target"
STATUS, DESCRIPTORS = Path("/proc/self/status"), Path("/proc/self/fd")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make_pair(folder: Path) -> tuple[EngineConfig, EngineConfig]:
    """A target on paged caches and a draft on slabs, so that both are under attack. Their tokenizer is a real one."""
    target = make_model(folder / "target", "qwen3", vocab_size=VOCABULARY)
    draft = make_variation(folder / "draft", target, spread=0.1)
    for name in TOKENIZER_FILES:
        for model in (target, draft):
            shutil.copyfile(TOKENIZER / name, model / name)
    limits: dict[str, Any] = {
        "max_model_len": MAX_LENGTH,
        "max_num_seqs": MOST_SEQUENCES,
        "max_num_speculative_tokens": MAX_PROPOSED,
        "deterministic": True,
    }
    return engine_config(target, cache="paged", **limits), engine_config(draft, cache="contiguous", **limits)


async def model_state(model: RunningModel) -> dict[str, Any]:
    """Of a draft or target; texts that are kept for a call that may come again are forgotten, and counted."""
    texts = list(getattr(getattr(model.host, "_scorer", None), "_texts", ()))
    kept = [held for held in texts if held.is_open and not held.is_under_work]
    for held in kept:
        model.host.sequences.drop(held)
    await model.check_integrity()
    info = model.host.info()
    return {
        "sequences": info.sequence_count,
        "used_blocks": info.block_count - info.free_block_count,
        "kept_texts": len(kept),
    }


async def state(pair: RunningPair) -> dict[str, Any]:
    """The resources that this process holds now."""
    assert pair.draft is not None
    serving = pair.front_end.serving
    return {
        "target": await model_state(pair.target),
        "draft": await model_state(pair.draft),
        "requests": serving.request_count,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        **figures(),
    }


def figures() -> dict[str, int]:
    """Descriptors, and the memory in MiB: now, and at the most."""
    lines = [line.split() for line in STATUS.read_text().splitlines()]
    names = {"VmRSS:": "memory_mib", "VmHWM:": "peak_memory_mib"}
    memory = {names[line[0]]: int(line[1]) // 1024 for line in lines if line and line[0] in names}
    return {"descriptors": len(list(DESCRIPTORS.iterdir())), **memory}


async def main(folder: Path) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    target, draft = make_pair(folder)
    async with running_pair(target, draft, max_requests=MOST_SEQUENCES // 4) as pair:
        assert pair.draft is not None
        addresses = {
            "coordinator": pair.address,
            "target": pair.target.address,
            "draft": pair.draft.address,
            "http": pair.http_address,
        }
        print(json.dumps(addresses), flush=True)
        while await reader.readline():
            print(json.dumps(await state(pair)), flush=True)


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.WARNING)
    torch.set_num_threads(1)
    uvloop.run(main(Path(sys.argv[1])))
