"""What each step of the command does."""

import json
from pathlib import Path
from typing import cast

import torch

from models.eagle.beginning import begin
from models.eagle.features import FeatureStore
from models.eagle.head import Head, HeadConfig
from models.eagle.measure import measure
from models.eagle.saving import load_head, save_head
from models.eagle.training import HeadTrainer
from models.smollm2.batches import Corpus
from models.smollm2.decoder import DTYPE
from models.smollm2.steps import DATA, HELD_OUT, held_out_talks, print_tables
from models.smollm2.steps import PUBLISHED as DRAFT
from models.smollm2.target import WORK, load_target, read_target
from models.smollm2.training import Plan

FEATURES = (15, 27, 30)
"""The last is what leaves the target, which holds most of the next token."""
RUN = WORK / "run-head"
PUBLISHED = Path(__file__).parents[1] / "smollm2" / "head"
HEADS = 12
"""Of the attention: nine that carry the pair at their own place, and three that look back."""
BEGINNING = 100
"""Conversations from which the weights to begin with are fitted."""


def new_head() -> Head:
    """An untrained head for SmolLM2."""
    config, weights = read_target()
    theta = float(cast(dict, config.rope_parameters)["rope_theta"])
    shape = HeadConfig(
        width=config.hidden_size,
        feed_forward=config.intermediate_size,
        heads=HEADS,
        key_heads=HEADS,
        head_size=config.hidden_size // config.num_attention_heads,
        features=FEATURES,
        theta=theta,
        eps=config.rms_norm_eps,
    )
    return Head(shape, weights["model.embed_tokens.weight"].to(DTYPE, copy=True))


def output_tokens() -> list[int]:
    """Those of the draft, which were chosen from far more answers."""
    return json.loads((DRAFT / "config.json").read_text())["output_token_ids"]


def train(plan: Plan, begun: Path | None) -> None:
    """Trains, from the head in `begun` if there is one; the checkpoint stays for longer runs and for `publish`."""
    torch.manual_seed(0)
    head, corpus = new_head(), Corpus(DATA)
    stores = FeatureStore(DATA, FEATURES), FeatureStore(HELD_OUT, FEATURES)
    if begun and not (RUN / "checkpoint.pt").exists():
        head, _ = load_head(begun, head.embeddings)
    elif not (RUN / "checkpoint.pt").exists():
        begin(head, load_target().float(), stores[0], corpus.talks[:BEGINNING])
    HeadTrainer(head, output_tokens(), RUN, plan, stores, is_begun=begun is not None).run(corpus, held_out_talks())


def publish(folder: Path) -> None:
    """Writes the last checkpoint as a head."""
    head = new_head()
    state = torch.load(RUN / "checkpoint.pt", weights_only=True)
    with torch.no_grad():
        for name, parameter in head.trained().items():
            parameter.copy_(state["draft"][name])
    save_head(head, output_tokens(), len(head.embeddings), folder)


def measure_head(folder: Path) -> None:
    """Prints the held-out figures of a saved head as tables for its card."""
    _, weights = read_target()
    head, ids = load_head(folder, weights["model.embed_tokens.weight"].to(DTYPE, copy=True))
    talks = held_out_talks()
    print_tables(measure(head, ids, FeatureStore(HELD_OUT, FEATURES), talks, measured=True))
