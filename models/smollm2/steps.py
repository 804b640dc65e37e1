"""What each step of the command does."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from models.smollm2 import held_out
from models.smollm2.batches import Corpus, Talk, read_talks
from models.smollm2.decoder import Decoder
from models.smollm2.draft import Draft, load_draft, make_draft, save_draft
from models.smollm2.generation import Generator, next_number, write_all
from models.smollm2.measure import Result, measure
from models.smollm2.prompts import HERE, Prompts
from models.smollm2.shards import shard_paths
from models.smollm2.target import SYSTEM, WORK, read_target, read_tokenizer
from models.smollm2.training import Plan, Trainer
from models.smollm2.vocabulary import answer_mass, choose_output_tokens

DATA = WORK / "data"
CONTEXT = 296
"""Longest conversation in tokens; one that might become longer is left out."""
PER_SHARD = 32
HELD_OUT = WORK / "held_out"
VOCABULARY = WORK / "output_token_ids.json"
RUN = WORK / "run"
PUBLISHED = HERE / "draft"


def generate(
    slots: int, numbers: range, part: tuple[int, int], shares: Sequence[float], features: Sequence[int]
) -> None:
    """Conversations whose number leaves part[0] when divided by part[1]: one process for each core."""
    prompts = Prompts(read_tokenizer(), shares)
    config, weights = read_target()
    decoder = Decoder(config, weights, slots, CONTEXT, features)
    prefix = prompts.encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n")
    generator = Generator(decoder, slots, prefix)
    first = max(numbers.start, next_number(DATA))
    ours = (number for number in range(first, numbers.stop) if number % part[1] == part[0])
    numbered = ((number, prompts.conversation(number)) for number in ours)
    fitting = ((number, c) for number, c in numbered if sum(len(s.given) or s.most for s in c) <= CONTEXT)
    write_all(generator.run(fitting), DATA, PER_SHARD)


def hold_out(slots: int, features: Sequence[int]) -> None:
    """The target's answers to the held-out prompts, always the same."""
    torch.manual_seed(14)
    tokenizer = read_tokenizer()
    conversations = held_out.held_out_conversations(tokenizer)
    length = max(sum(len(s.given) or s.most for s in c) for _, c in conversations)
    config, weights = read_target()
    generator = Generator(Decoder(config, weights, slots, length, features), slots, (), most=held_out.TOP)
    write_all(generator.run(iter(conversations)), HELD_OUT, per_shard=len(conversations))


def vocabulary(size: int) -> None:
    """Chooses the output tokens, and says how much of the target's probability they cover."""
    config, _ = read_target()
    mass, held = answer_mass(DATA, config.vocab_size), answer_mass(HELD_OUT, config.vocab_size)
    for candidate in sorted({4096, 6144, 8192, 12288, 16384, size}):
        ids = choose_output_tokens(mass, candidate)
        print(
            f"{candidate}: {mass[ids].sum() / mass.sum():.4f} of training, {held[ids].sum() / held.sum():.4f} held out"
        )
    VOCABULARY.write_text(json.dumps(choose_output_tokens(mass, size)) + "\n")


def output_token_ids() -> list[int]:
    return json.loads(VOCABULARY.read_text())


def held_out_talks() -> list[Talk]:
    return [talk for path in shard_paths(HELD_OUT) for talk in read_talks(path)]


def new_draft(layers: list[int]) -> Draft:
    return make_draft(*read_target(), layers)


def train(layers: list[int], plan: Plan, publish_to: Path) -> None:
    """Trains and writes the draft to `publish_to`; the checkpoint stays for longer runs."""
    torch.manual_seed(0)
    trainer = Trainer(new_draft(layers), output_token_ids(), RUN, plan)
    trainer.run(Corpus(DATA), held_out_talks())
    if trainer.together.first:
        publish(layers, publish_to)


def publish(layers: list[int], folder: Path) -> None:
    """Writes the last checkpoint as a draft."""
    draft = new_draft(layers)
    state = torch.load(RUN / "checkpoint.pt", weights_only=True)
    with torch.no_grad():
        for name, parameter in draft.trained().items():
            parameter.copy_(state["draft"][name])
    save_draft(draft, output_token_ids(), folder)


def measure_draft(folder: Path) -> None:
    """Prints the held-out figures of a saved draft as tables for its card."""
    _, weights = read_target()
    draft, ids = load_draft(folder, weights["model.embed_tokens.weight"].clone())
    print_tables(measure(draft, ids, held_out_talks(), measured=True))


def print_tables(results: dict[tuple[float, str], Result]) -> None:
    """Prints results as the tables of a card."""
    for temperature, name in ((0.0, "agreement"), (1.0, "overlap")):
        rows = {category: result for (heat, category), result in results.items() if heat == temperature}
        lengths = list(next(iter(rows.values())).rounds)
        print(f"\n| T = {temperature:g} | tokens | {name} | " + " | ".join(f"K = {k}" for k in lengths) + " |")
        print("|---|" + "--:|" * (len(lengths) + 2))
        for category, result in rows.items():
            figures = " | ".join(f"{result.rounds[k]:.2f}" for k in lengths)
            print(f"| {category} | {result.tokens} | {result.acceptance:.3f} | {figures} |")
