"""What each step of the command does."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from models.eagle.features import FeatureStore, Taps
from models.eagle.head import Head, HeadConfig, initialise, layer_numbers
from models.eagle.measure import measure
from models.eagle.saving import load_head, save_head
from models.eagle.training import HeadTrainer
from models.smollm2.batches import Corpus, Talk
from models.smollm2.draft import FINAL_GAIN
from models.smollm2.steps import DATA, held_out_talks, print_tables
from models.smollm2.target import WORK, load_target, read_target
from models.smollm2.training import Plan
from models.smollm2.vocabulary import answer_mass, choose_output_tokens

FEATURES = WORK / "features"
HELD_OUT_FEATURES = WORK / "features-held-out"
RUN = WORK / "run-head"
PUBLISHED = Path(__file__).parent / "smollm2"
OUTPUTS = 12_288
"""Output tokens: 94.7 % of the held-out answers at temperature 0 are among them, 91.7 % among 8,192."""


def new_head(feed_forward: int) -> Head:
    """An untrained head for SmolLM2."""
    config, weights = read_target()
    theta = float(cast(dict, config.rope_parameters)["rope_theta"])
    heads = config.num_attention_heads
    shape = HeadConfig(
        width=config.hidden_size,
        feed_forward=feed_forward,
        heads=heads,
        key_heads=heads,  # the next token enters by the values only: as many of them as the width
        head_size=config.hidden_size // heads,
        features=tuple(layer_numbers(config.num_hidden_layers)),
        theta=theta,
        eps=config.rms_norm_eps,
    )
    head = Head(shape, weights["model.embed_tokens.weight"].clone())
    initialise(head, weights["model.norm.weight"], FINAL_GAIN)
    return head


def output_tokens() -> list[int]:
    config, _ = read_target()
    return choose_output_tokens(answer_mass(DATA, config.vocab_size), OUTPUTS)


def store(folder: Path, talks: Sequence[Talk], head: Head) -> FeatureStore:
    return FeatureStore(folder, talks, Taps(load_target(), head.config.features))


class SomeTalks(Corpus):
    """Some conversations of a folder, those first whose features are known: to compute them costs as much as a step."""

    def __init__(self, folder: Path, most: int, features: FeatureStore) -> None:
        super().__init__(folder)
        known = dict(zip((talk.number for talk in features.talks), features.known, strict=True))
        self.talks = sorted(self.talks, key=lambda talk: not known[talk.number])[:most]

    def refresh(self) -> None:
        if not self.known:
            super().refresh()


def train(feed_forward: int, most: int, plan: Plan) -> None:
    """Trains; the checkpoint stays for longer runs and for `publish`."""
    torch.manual_seed(0)
    head = new_head(feed_forward)
    held_out = held_out_talks()
    stores = store(FEATURES, Corpus(DATA).talks, head), store(HELD_OUT_FEATURES, held_out, head)
    corpus = SomeTalks(DATA, most, stores[0])
    HeadTrainer(head, output_tokens(), RUN, plan, stores).run(corpus, held_out)


def publish(feed_forward: int, folder: Path) -> None:
    """Writes the last checkpoint as a head."""
    head = new_head(feed_forward)
    state = torch.load(RUN / "checkpoint.pt", weights_only=True)
    with torch.no_grad():
        for name, parameter in head.trained().items():
            parameter.copy_(state["draft"][name])
    save_head(head, output_tokens(), len(head.embeddings), folder)


def measure_head(folder: Path) -> None:
    """Prints the held-out figures of a saved head as tables for its card."""
    _, weights = read_target()
    head, ids = load_head(folder, weights["model.embed_tokens.weight"].clone())
    talks = held_out_talks()
    print_tables(measure(head, ids, store(HELD_OUT_FEATURES, talks, head), talks, measured=True))
