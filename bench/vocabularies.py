"""`python -m bench.vocabularies`: what a draft with another vocabulary is worth to a running pair, and what it costs.

Start a target with drafts of `python -m models.vocabularies FOLDER`, and name the drafts: `specpair up --draft
same=FOLDER/same,u3000=FOLDER/unigram,b1500=FOLDER/bpe`, `--drafts same u3000 b1500`. For each it prints tokens per
round, acceptance, and the time of a round at T = 0 and T = 1, on the beginnings of held-out files with fixed seeds.
Tokens are counted, so a busy machine gives the same figures; the drafts take turns, so that times can be compared.
`--cost` needs no pair: it prints what the translation of a round takes, for the bundled target and a draft in a folder.
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.prompts import held_out_prompts
from command.connection import coordinator_at
from command.failures import CommandError
from draft_service.translation.translation import make_translation
from draft_service.translation.vocabulary import Vocabulary
from specpair.model_info import TokenizerFiles
from specpair.rpc.messages import model_info_from_proto
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1.sequence_service_pb2 import GetModelInfoResponse

TARGET = Path(__file__).parents[1] / "models" / "bundled" / "target"
END = "<|endoftext|>"
MAX_TOKENS = 64
TEMPERATURES = (0.0, 1.0)


@dataclass
class Counted:
    """The outputs of one draft at one temperature."""

    rounds: int = 0
    tokens: int = 0
    """Without the first ones, which no round gave."""
    drafted: int = 0
    accepted: int = 0
    round_ms: list[float] = field(default_factory=list)
    """Of each output, the mean time of a round."""

    def add(self, summary: pb.GenerationSummary) -> None:
        counts = summary.speculation
        self.rounds += counts.round_count
        self.tokens += summary.completion_token_count - 1
        self.drafted += counts.draft_token_count
        self.accepted += counts.accepted_token_count
        self.round_ms.append((summary.total_time_us - summary.time_to_first_token_us) / 1e3 / counts.round_count)

    def figures(self, first: "Counted") -> dict[str, float]:
        """`first` is that of the draft with which times are compared, output by output."""
        more = [own - other for own, other in zip(self.round_ms, first.round_ms, strict=True)]
        return {
            "tokens_per_round": round(self.tokens / self.rounds, 3),
            "acceptance": round(self.accepted / self.drafted, 3),
            "round_ms": round(median(self.round_ms), 2),
            "more_ms": round(median(more), 2),
        }


async def measure(address: str, prompt_count: int, length: int, drafts: list[str]) -> list[dict[str, Any]]:
    """For each draft: how it translates, and its figures by temperature. The first is what times are compared with."""
    counted = {(draft, temperature): Counted() for draft in drafts for temperature in TEMPERATURES}
    async with coordinator_at(address) as stub:
        info = await stub.GetPairInfo(pb.GetPairInfoRequest())
        infos = {each.name: each.draft for each in info.drafts} or {"": info.draft}
        for seed, prompt in enumerate(["# Warm-up", *held_out_prompts(prompt_count)]):
            for (draft, temperature), counts in counted.items():
                request = pb.GenerateTokensRequest(
                    text=prompt,
                    max_tokens=MAX_TOKENS,
                    num_speculative_tokens=length,
                    drafts=filter(None, [draft]),
                    sampling={"temperature": temperature, "seed": seed},
                )
                summary = [response async for response in stub.GenerateTokens(request)][-1].summary
                if seed:
                    counts.add(summary)
    return [
        {
            "draft": draft or infos[draft].model_name,
            **translation_of(infos[draft]),
            **{f"T={t:g}": counted[draft, t].figures(counted[drafts[0], t]) for t in TEMPERATURES},
        }
        for draft in drafts
    ]


def translation_of(info: GetModelInfoResponse) -> dict[str, Any]:
    translations = model_info_from_proto(info).translations
    if not translations:
        return {"method": "one vocabulary", "overlap": 1.0}
    methods = dict.fromkeys((translations[0].greedy_method.value, translations[0].method.value))
    return {"method": ", ".join(methods), "overlap": round(translations[0].overlap, 3)}


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
    parser.add_argument("--drafts", nargs="+", default=[""], help="names of drafts; the first is what times refer to")
    parser.add_argument("--cost", type=Path)
    options = parser.parse_args()
    if options.cost is not None:
        print(json.dumps(cost(options.cost)))
    else:
        try:
            measured = asyncio.run(measure(options.address, options.prompts, options.length, options.drafts))
        except CommandError as error:
            raise SystemExit(f"error: {error}") from error
        for found in measured:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
