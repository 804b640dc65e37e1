"""Train small drafts for the bundled target: one with its tokenizer, others with tokenizers of their own.

`python -m models.vocabularies FOLDER` trains each on the texts of `models/corpus.py`, with the same shape, for the same
number of seconds (270 by default) on one thread, and leaves them in FOLDER. They are not kept in the repository:
`python -m bench.vocabularies` compares them.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.corpus import END_OF_TEXT, encode, read_texts

TARGET = Path(__file__).parents[1] / "bundled" / "target"
SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
WINDOW, WINDOWS = 192, 8
RATE, WARM_UP_SECONDS = 4e-3, 5.0
TOKENIZER_TEXTS = 150


def own_tokenizer(name: str, texts: list[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of one draft: `same` has the target's, `unigram` and `bpe` have smaller ones of their own."""
    if name == "same":
        return PreTrainedTokenizerFast.from_pretrained(TARGET)
    tokenizer = Tokenizer(models.Unigram() if name == "unigram" else models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    settings: dict[str, Any] = {
        "special_tokens": [END_OF_TEXT],
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "show_progress": False,
    }
    trainer = (
        trainers.UnigramTrainer(vocab_size=3000, **settings)
        if name == "unigram"
        else trainers.BpeTrainer(vocab_size=1500, **settings)
    )
    tokenizer.train_from_iterator(texts[:TOKENIZER_TEXTS], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT)


def train(tokenizer: PreTrainedTokenizerFast, texts: list[str], seconds: float) -> LlamaForCausalLM:
    """A draft of the shape, trained on windows of the texts; the rate falls to nothing at the end."""
    torch.manual_seed(0)
    tokens = torch.from_numpy(encode(tokenizer, texts).astype(np.int64))
    end: Any = tokenizer.eos_token_id
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, **SHAPE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    random = np.random.default_rng(0)
    started, steps, loss = time.perf_counter(), 0, torch.zeros(())
    while (spent := time.perf_counter() - started) < seconds:
        share = min(1.0, spent / WARM_UP_SECONDS) * (1.0 - spent / seconds)
        for group in optimizer.param_groups:
            group["lr"] = RATE * share
        starts = random.integers(0, len(tokens) - WINDOW, WINDOWS)
        batch = torch.stack([tokens[start : start + WINDOW] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    print(f"{steps} steps of {WINDOW * WINDOWS} tokens, loss {loss.item():.3f}", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=270.0)
    parser.add_argument("--drafts", nargs="+", default=["same", "unigram", "bpe"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts, _ = read_texts()
    for name in options.drafts:
        tokenizer = own_tokenizer(name, texts)
        print(f"{name}: {len(tokenizer)} tokens", flush=True)
        model = train(tokenizer, texts[: len(texts) // 2], options.seconds)
        model.save_pretrained(options.folder / name)
        tokenizer.save_pretrained(options.folder / name)


main()
