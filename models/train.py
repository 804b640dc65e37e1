"""Train the bundled pair from scratch: `python models/train.py target`, then `draft`.

The target learns the next token of the standard library's sources. The draft learns the same first, which
is cheap, and is then distilled from the target's soft labels: by Kullback-Leibler divergence, and at the end
by total variation, because 1 - TV(draft, target) *is* the acceptance rate (Leviathan et al., "Fast Inference
from Transformers via Speculative Decoding", Corollary 3.6). Stop it at any time; the same command resumes from
the last checkpoint.
"""

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from corpus import encode, read_texts, train_tokenizer
from muon import Muon
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
WORK = HERE / "work"
BUNDLED = HERE / "bundled"
VOCAB_SIZE = 4096
CONTEXT = 1024
# Most steps use short windows: attention and cache misses make a token of a long window 1.5 times as expensive.
SHORT_CONTEXT = 256
LONG_EVERY = 4
# Share of the draft's run without a teacher, at three times the speed.
PLAIN_SHARE = 0.25
CHECKPOINT_SECONDS = 240.0
REPORT_SECONDS = 20.0
SHAPES: dict[str, dict[str, Any]] = {
    "target": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "num_attention_heads": 4},
    "draft": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 2},
}


@dataclass(kw_only=True)
class Progress:
    """The progress of a training run; saved with every checkpoint."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0


def bundled_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """The pair's tokenizer; trained on the texts if there is none yet. Weights work only with their own."""
    if not (BUNDLED / "target" / "tokenizer.json").exists():
        tokenizer = train_tokenizer(texts, VOCAB_SIZE)
        for name in SHAPES:
            tokenizer.save_pretrained(BUNDLED / name)
    return PreTrainedTokenizerFast.from_pretrained(BUNDLED / "target")


def prepare_corpus() -> dict[str, np.ndarray]:
    """Tokenizer and token arrays, made once and kept in `models/work`."""
    WORK.mkdir(exist_ok=True)
    paths = {side: WORK / f"{side}.npy" for side in ("train", "validation")}
    if not all(path.exists() for path in paths.values()):
        training, validation = read_texts()
        print(f"corpus: {len(training)} files to train on, {len(validation)} held out", flush=True)
        tokenizer = bundled_tokenizer(training)
        np.save(paths["train"], encode(tokenizer, training))
        np.save(paths["validation"], encode(tokenizer, validation))
    return {side: np.load(path) for side, path in paths.items()}


def build(name: str) -> LlamaForCausalLM:
    end = AutoTokenizer.from_pretrained(BUNDLED / name).eos_token_id
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
        **SHAPES[name],
    )
    return LlamaForCausalLM(config)


def optimizers(model: LlamaForCausalLM, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    adamw = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    made: list[torch.optim.Optimizer] = [Muon(matrices, lr=lr), adamw]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return made


def learning_rate_factor(done: float) -> float:
    """Warms up over 2 % of the run, stays, then falls to zero over the last 60 %. `done` in [0, 1]."""
    return min(1.0, done / 0.02 + 0.01, max(0.0, (1 - done) / 0.6))


def windows(tokens: np.ndarray, batch: int, step: int) -> Tensor:
    """Random windows `[n, length + 1]` of the corpus that hold `batch` tokens to predict; the same ones for a step."""
    length = SHORT_CONTEXT if step % LONG_EVERY else CONTEXT
    starts = np.random.default_rng(step).integers(0, len(tokens) - length - 1, size=batch // length)
    return torch.from_numpy(np.stack([tokens[s : s + length + 1] for s in starts]).astype(np.int64))


def distillation_loss(logits: Tensor, teacher_logits: Tensor, done: float) -> Tensor:
    """KL(target || draft), and mostly total variation over the last third of the run."""
    log_draft = F.log_softmax(logits.flatten(0, 1), dim=-1)
    log_target = F.log_softmax(teacher_logits.flatten(0, 1), dim=-1)
    divergence = F.kl_div(log_draft, log_target, reduction="batchmean", log_target=True)
    if done < 2 / 3:
        return divergence
    variation = 0.5 * (log_draft.exp() - log_target.exp()).abs().sum(-1).mean()
    return 0.1 * divergence + variation


@torch.inference_mode()
def validation_loss(model: torch.nn.Module, tokens: np.ndarray, most: int = 120) -> float:
    """Mean negative log-likelihood in nats per token over held-out files, in windows of CONTEXT tokens."""
    model.eval()
    losses = []
    for start in range(0, min(len(tokens) - CONTEXT - 1, most * CONTEXT), CONTEXT):
        window = torch.from_numpy(tokens[start : start + CONTEXT + 1].astype(np.int64))[None]
        logits = model(input_ids=window[:, :-1], use_cache=False).logits
        losses.append(F.cross_entropy(logits[0].float(), window[0, 1:]).item())
    model.train()
    return sum(losses) / len(losses)


def save(name: str, model: LlamaForCausalLM, progress: Progress, loss: float) -> None:
    """Saves the finished model as bf16 safetensors, with the facts for its model card."""
    folder = BUNDLED / name
    rounded = build(name)
    rounded.load_state_dict(model.state_dict())
    cast(torch.nn.Module, rounded).to(torch.bfloat16)
    rounded.save_pretrained(folder)
    facts = {"parameters": model.num_parameters(), "validation_loss": round(loss, 4), **asdict(progress)}
    (folder / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"saved {folder}: {facts}", flush=True)


def train(name: str, minutes: float, batch: int, lr: float, warm: bool) -> None:
    torch.manual_seed(0)
    corpus = prepare_corpus()
    model = build(name)
    if warm:
        weights = LlamaForCausalLM.from_pretrained(BUNDLED / name, dtype=torch.float32).state_dict()
        model.load_state_dict(weights)
    made = optimizers(model, lr)
    checkpoint = WORK / f"{name}.pt"
    progress = resume(checkpoint, model, made)
    teacher = None
    if name == "draft":
        teacher = LlamaForCausalLM.from_pretrained(BUNDLED / "target", dtype=torch.float32).eval()
    budget = minutes * 60
    clock = last_report = last_save = time.monotonic()
    while progress.seconds < budget:
        done = progress.seconds / budget
        window = windows(corpus["train"], batch, progress.steps)
        loss = loss_of(model, teacher, window, done)
        learn(model, made, loss, done)
        now = time.monotonic()
        progress.seconds += now - clock
        clock = now
        progress.steps += 1
        progress.tokens += window[:, 1:].numel()
        if not math.isfinite(loss.item()):
            raise SystemExit(f"the loss of step {progress.steps} is {loss.item()}")
        if now - last_report > REPORT_SECONDS:
            last_report = now
            report(name, progress, loss.item(), budget)
        if now - last_save > CHECKPOINT_SECONDS:
            last_save = now
            keep(checkpoint, model, made, progress)
            print(f"validation loss {validation_loss(model, corpus['validation'], most=16):.3f}", flush=True)
            clock = time.monotonic()
    save(name, model, progress, validation_loss(model, corpus["validation"]))


def resume(checkpoint: Path, model: LlamaForCausalLM, made: list[torch.optim.Optimizer]) -> Progress:
    """The progress of a checkpoint, after loading its weights and optimizer state; without one, new progress."""
    if not checkpoint.exists():
        return Progress()
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, kept in zip(made, state["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    progress = Progress(**state["progress"])
    print(f"resumed {checkpoint.stem} at step {progress.steps}", flush=True)
    return progress


def keep(checkpoint: Path, model: LlamaForCausalLM, made: list[torch.optim.Optimizer], progress: Progress) -> None:
    """Writes the checkpoint for `resume`."""
    state = {"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in made]}
    torch.save({**state, "progress": asdict(progress)}, checkpoint.with_suffix(".new"))
    checkpoint.with_suffix(".new").replace(checkpoint)


def loss_of(model: LlamaForCausalLM, teacher: LlamaForCausalLM | None, window: Tensor, done: float) -> Tensor:
    """Loss of next-token prediction; with a teacher, of distillation after the first part of the run."""
    inputs, labels = window[:, :-1], window[:, 1:]
    logits = model(input_ids=inputs, use_cache=False).logits
    if teacher is None or done < PLAIN_SHARE:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    with torch.inference_mode():
        teacher_logits = teacher(input_ids=inputs, use_cache=False).logits
    return distillation_loss(logits, teacher_logits.clone(), done)


def learn(model: LlamaForCausalLM, made: list[torch.optim.Optimizer], loss: Tensor, done: float) -> None:
    """One step of the optimizers."""
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * learning_rate_factor(done)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def report(name: str, progress: Progress, loss: float, budget: float) -> None:
    rate = progress.tokens / progress.seconds
    print(
        f"{name} {100 * progress.seconds / budget:5.1f}%  step {progress.steps}  loss {loss:.3f}"
        f"  {rate:.0f} tokens/s  {(budget - progress.seconds) / 60:.0f} min left",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(SHAPES), help="which model to train; the target comes first")
    parser.add_argument("--minutes", type=float, default=120.0, help="training time, over all resumed runs")
    parser.add_argument("--batch", type=int, default=2 * CONTEXT, help=f"tokens per step, a multiple of {CONTEXT}")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--warm-start", action="store_true", help="begin with the bundled weights")
    arguments = parser.parse_args()
    if arguments.batch % CONTEXT:
        parser.error(f"--batch is {arguments.batch}, not a multiple of {CONTEXT}")
    train(arguments.name, arguments.minutes, arguments.batch, arguments.lr, arguments.warm_start)


if __name__ == "__main__":
    main()
