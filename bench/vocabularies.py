"""`python -m bench.vocabularies`: what a draft with another vocabulary is worth to a running pair, and what it costs.

Start a pair for each draft, `specpair up --draft FOLDER` with a draft of `python -m models.vocabularies FOLDER`, and
compare what this prints: tokens per round and acceptance at T = 0 and T = 1, on the beginnings of held-out files with
fixed seeds. Tokens are counted, so a busy machine gives the same figures. `--cost` needs no pair: it prints what the
translation of a round takes, for the bundled target and a draft in a folder.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.prompts import held_out_prompts
from command.connection import coordinator_at
from draft_service.translation.translation import make_translation
from draft_service.translation.vocabulary import Vocabulary
from specpair.model_info import TokenizerFiles
from specpair.rpc.messages import model_info_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

TARGET = Path(__file__).parents[1] / "models" / "bundled" / "target"
END = "<|endoftext|>"
MAX_TOKENS = 64


async def measure(address: str, prompt_count: int, length: int) -> dict[str, Any]:
    """Tokens per round and acceptance by temperature, and how the draft translates."""
    found: dict[str, Any] = {}
    async with coordinator_at(address) as stub:
        info = await stub.GetPairInfo(pb.GetPairInfoRequest())
        translations = model_info_from_proto(info.draft).translations
        found["draft"] = info.draft.model_name
        found["method"] = translations[0].method.value if translations else "one vocabulary"
        found["overlap"] = round(translations[0].overlap, 3) if translations else 1.0
        for temperature in (0.0, 1.0):
            rounds = tokens = drafted = accepted = 0
            for seed, prompt in enumerate(held_out_prompts(prompt_count)):
                request = pb.GenerateTokensRequest(
                    text=prompt,
                    max_tokens=MAX_TOKENS,
                    num_speculative_tokens=length,
                    sampling={"temperature": temperature, "seed": seed},
                )
                summary = [response async for response in stub.GenerateTokens(request)][-1].summary
                counts = summary.speculation
                rounds += counts.round_count
                tokens += summary.completion_token_count - 1
                drafted += counts.draft_token_count
                accepted += counts.accepted_token_count
            found[f"T={temperature:g}"] = {
                "tokens_per_round": round(tokens / rounds, 3),
                "acceptance": round(accepted / drafted, 3),
            }
    return found


def cost(folder: Path) -> dict[str, Any]:
    """Seconds of processor time that the event loop gives to the translation of one round of four tokens."""
    reader, writer = (
        TokenizerFiles(
            tokenizer_json=(path / "tokenizer.json").read_bytes(), chat_template="", bos_token=END, eos_token=END
        )
        for path in (TARGET, folder)
    )
    text = "\n".join(held_out_prompts(40))
    translation = make_translation(Vocabulary(writer, writes=True), reader, None, text)
    tokens = translation.reader.encode(text)
    transcript = translation.transcript()
    transcript.follow(0, tokens[:500])
    times: list[float] = []
    for start in range(500, len(tokens) - 4, 4):
        begun = time.process_time()
        transcript.follow(start, tokens[start : start + 4])
        times.append(time.process_time() - begun)
    return {"rounds": len(times), "median_us": round(median(times) * 1e6, 1), "largest_us": round(max(times) * 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:50050")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--cost", type=Path)
    options = parser.parse_args()
    if options.cost is not None:
        print(json.dumps(cost(options.cost)))
    else:
        print(json.dumps(asyncio.run(measure(options.address, options.prompts, options.length))))


if __name__ == "__main__":
    main()
