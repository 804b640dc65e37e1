"""Sampling written down as plainly as can be, one row and one token at a time: what the services must equal."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from specpair.options import SamplingOptions
from specpair.speculation.gumbel import noise


def plain_distribution(
    logits: np.ndarray, options: SamplingOptions, prompt: Sequence[int] = (), output: Sequence[int] = ()
) -> np.ndarray:
    """The distribution [V] float64 that a token is drawn from behind `prompt` and `output`."""
    scores = plain_scores(logits, options, prompt, output)
    if options.is_greedy:
        return np.eye(len(scores))[int(scores.argmax())]
    weights = np.exp((scores - scores.max()) / options.temperature)
    weights[weights < options.min_p] = 0.0
    order = np.argsort(-weights, kind="stable")
    if options.top_k:
        weights[order[options.top_k :]] = 0.0
    weights /= weights.sum()
    before = 0.0
    for token in order:
        share = weights[token]
        if before >= options.top_p:
            weights[token] = 0.0
        before += share
    return weights / weights.sum()


def plain_scores(
    logits: np.ndarray, options: SamplingOptions, prompt: Sequence[int], output: Sequence[int]
) -> np.ndarray:
    """Logits [V] with masks, bias and penalties."""
    scores = logits.astype(np.float64).copy()
    for token in range(len(scores)):
        if options.allowed_token_ids and token not in options.allowed_token_ids:
            scores[token] = -np.inf
        if token in options.banned_token_ids:
            scores[token] = -np.inf
        if len(output) < options.min_tokens and token in options.stop_token_ids:
            scores[token] = -np.inf
        scores[token] += dict(options.logit_bias).get(token, 0.0)
        if token in prompt or token in output:
            penalty = options.repetition_penalty
            scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
        scores[token] -= options.frequency_penalty * list(output).count(token)
        scores[token] -= options.presence_penalty * (token in output)
    return scores


def last_logits(model: Any, tokens: Sequence[int]) -> np.ndarray:
    """What a transformers model says behind the tokens: [V] float64."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(tokens)])).logits[0, -1].double().numpy()


def plain_loop(
    model: Any, prompt: Sequence[int], options: SamplingOptions, count: int, choose: Callable[[np.ndarray, int], int]
) -> list[int]:
    """`count` tokens, each from a forward pass over everything before it; `choose` gets distribution and position."""
    output: list[int] = []
    for _ in range(count):
        row = plain_distribution(last_logits(model, [*prompt, *output]), options, prompt, output)
        output.append(choose(row, len(prompt) + len(output)))
    return output


def coupled_choice(seed: int) -> Callable[[np.ndarray, int], int]:
    """The argmax of log p + g; at temperature 0 the argmax."""

    def choose(row: np.ndarray, position: int) -> int:
        with np.errstate(divide="ignore"):
            return int((np.log(row) + noise([seed], [position], len(row))[0].numpy()).argmax())

    return choose


def enumerate_continuations(
    model: Any, prompt: Sequence[int], options: SamplingOptions, length: int
) -> dict[tuple[int, ...], float]:
    """The probability of every continuation of `prompt` by `length` tokens, one plain forward pass each."""
    joint: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        extended = {}
        for tokens, probability in joint.items():
            if probability == 0.0:
                row = np.eye(1, len(last_logits(model, prompt)))[0]
            else:
                row = plain_distribution(last_logits(model, [*prompt, *tokens]), options, prompt, tokens)
            for token, share in enumerate(row):
                extended[(*tokens, token)] = probability * share
        joint = extended
    return joint
