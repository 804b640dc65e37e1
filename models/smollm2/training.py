"""Training of the draft: resumes by itself, reads new shards at each epoch, and keeps what it measured."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.muon import Muon
from models.smollm2.batches import Batch, Corpus, Talk, columns_of, join
from models.smollm2.decoder import DTYPE
from models.smollm2.loss import DistillationLoss, Weights
from models.smollm2.measure import measure
from models.smollm2.together import Together

REPORT_SECONDS = 60.0
WEIGHT_DECAY = 0.1
WARM_UP = 25
"""Steps over which the learning rate rises."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run trains."""

    minutes: float
    """Training time over all resumed runs; the learning rate falls over the last part of it."""
    learning_rate: float
    rows: int
    """Conversations of a step."""
    check_minutes: float
    """Between measurements on the prompts for choosing, each followed by a checkpoint."""
    overlap: float
    """Share of the overlap in the loss of the last part."""
    heat: float
    """Temperature of the overlap of answers at temperatures below 1: they teach what the draft is for at 0."""
    falling: float = 0.6
    """Part of the run over which the learning rate falls to zero."""
    overlap_from: float = 0.3
    """Part of the run after which the loss has the overlap in it."""


@dataclass(kw_only=True)
class Progress:
    """How far a run has come; saved with every checkpoint."""

    seconds: float = 0.0
    steps: int = 0
    answer_tokens: int = 0


class Trainer:
    """One draft, its optimizers and its progress."""

    now = staticmethod(monotonic)
    """The clock by which the plan's minutes pass, in seconds."""

    def __init__(self, draft: Any, output_token_ids: list[int], folder: Path, plan: Plan) -> None:
        """`draft` is a Draft; a subclass that says how it is run may train something else."""
        self.draft, self.output_token_ids, self.folder, self.plan = draft, output_token_ids, folder, plan
        self.head = draft.embeddings[output_token_ids].to(DTYPE)
        self.columns = columns_of(output_token_ids, len(draft.embeddings))
        parameters = draft.trained().values()
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(
                [p for p in parameters if p.ndim == 2],
                lr=plan.learning_rate,
                weight_decay=WEIGHT_DECAY,
                dtype=DTYPE,
            ),
            torch.optim.AdamW([p for p in parameters if p.ndim != 2], lr=plan.learning_rate, weight_decay=0.0),
        ]
        self.progress, self.together = Progress(), Together()
        self.clock = self.now()
        self.checkpoint = folder / "checkpoint.pt"
        if self.checkpoint.exists():
            self.resume()

    def resume(self) -> None:
        state = torch.load(self.checkpoint, weights_only=True)
        with torch.no_grad():
            for name, parameter in self.draft.trained().items():
                parameter.copy_(state["draft"][name])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        for group in self.optimizers[0].param_groups:
            group["weight_decay"] = WEIGHT_DECAY
        self.progress = Progress(**state["progress"])
        print(f"resumed at step {self.progress.steps}", flush=True)

    def keep(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.checkpoint.with_suffix(".new")
        state = {"draft": self.draft.trained(), "optimizers": [o.state_dict() for o in self.optimizers]}
        torch.save({**state, "progress": asdict(self.progress)}, unfinished)
        unfinished.replace(self.checkpoint)

    @property
    def done(self) -> float:
        return min(1.0, self.progress.seconds / (60 * self.plan.minutes))

    def weights(self) -> Weights:
        return Weights(overlap=self.plan.overlap * (self.done > self.plan.overlap_from), heat=self.plan.heat)

    def loss(self, batch: Batch) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=torch.bfloat16 == DTYPE):
            hidden = self.draft(batch.token_ids)
        return self.distance(hidden.flatten(0, 1)[batch.places], batch)

    def distance(self, chosen: Tensor, batch: Batch) -> Tensor:
        """Of hidden states `[places, width]` from what the target says there."""
        return DistillationLoss.apply(chosen.float(), self.head, batch.teacher, self.weights())

    def join(self, talks: list[Talk]) -> Batch:
        return join(talks, self.columns)

    def measure(self, held_out: list[Talk]) -> dict:
        """Results on the prompts for choosing."""
        return measure(self.draft, self.output_token_ids, held_out, measured=False)

    def step(self, batch: Batch) -> float:
        """One step of the optimizers; returns the loss."""
        loss = self.loss(batch)
        loss.backward()
        now = self.now()
        took, tokens = self.together.average(self.draft.trained().values(), now - self.clock, len(batch.places))
        self.clock = now
        torch.nn.utils.clip_grad_norm_(self.draft.trained().values(), 1.0)
        factor = min(1.0, self.progress.steps / WARM_UP + 0.02, max(0.0, (1 - self.done) / self.plan.falling))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.plan.learning_rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.progress.seconds += took
        self.progress.steps += 1
        self.progress.answer_tokens += tokens
        if not math.isfinite(loss.item()):
            raise SystemExit(f"the loss of step {self.progress.steps} is {loss.item()}")
        return loss.item()

    def batches(self, corpus: Corpus) -> Iterator[Batch]:
        """Epoch after epoch, each over all shards that exist by then."""
        while True:
            corpus.refresh()
            if self.together.first:
                print(f"epoch over {len(corpus.talks)} conversations, {corpus.answer_tokens} answer tokens", flush=True)
            groups = corpus.epoch(np.random.default_rng(self.progress.steps), self.plan.rows)
            for index, talks in enumerate(groups):
                if index % self.together.size == self.together.rank:
                    yield self.join(talks)

    def run(self, corpus: Corpus, held_out: list[Talk]) -> None:
        """Trains until the plan's time is over, with checkpoints and measurements in between."""
        self.clock, reported, checked = self.now(), monotonic(), monotonic()
        losses: list[float] = []
        for batch in self.batches(corpus):
            losses.append(self.step(batch))
            over, now = self.done >= 1, monotonic()
            if self.together.first and now - reported > REPORT_SECONDS:
                reported, losses = now, self.report(losses)
            if self.together.first and (over or now - checked > 60 * self.plan.check_minutes):
                self.keep()
                if held_out:
                    self.check(held_out)
                checked, self.clock = monotonic(), self.now()
            if over:
                return

    def report(self, losses: list[float]) -> list[float]:
        rate = self.progress.answer_tokens / self.progress.seconds
        mean = sum(losses) / len(losses)
        print(f"{100 * self.done:5.1f}%  step {self.progress.steps}  loss {mean:.3f}  {rate:.0f} tokens/s", flush=True)
        return []

    def check(self, held_out: list[Talk]) -> None:
        """Measures on the prompts for choosing, prints it and appends it to the run's curve."""
        results = self.measure(held_out)
        cold, warm = results[0.0, "all"], results[1.0, "all"]
        point = {**asdict(self.progress), "agreement": cold.acceptance, "overlap": warm.acceptance}
        point |= {"tokens_per_round": {"0": cold.rounds[4], "1": warm.rounds[4]}}
        with (self.folder / "curve.jsonl").open("a") as file:
            file.write(json.dumps(point) + "\n")
        print(
            f"       agreement {cold.acceptance:.3f}, overlap {warm.acceptance:.3f};"
            f" tokens a round at K = 4: {cold.rounds[4]:.2f} and {warm.rounds[4]:.2f}",
            flush=True,
        )
