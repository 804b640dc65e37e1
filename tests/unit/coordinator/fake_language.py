"""What the fakes say: a function of the history, so every correct run gives the same tokens whatever goes wrong."""

from collections.abc import Sequence

from specpair.v1.logprobs_pb2 import TokenLogprobs

VOCAB_SIZE = 97


def next_token(history: Sequence[int], seed: int = 0) -> int:
    """What the target says after a history."""
    return (sum(history[-3:]) * 7 + len(history) + seed) % VOCAB_SIZE


def continuation(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """What the target alone generates."""
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history, seed))
    return history[len(prompt) :]


def logprob(position: int, token_id: int) -> float:
    """What the target makes of a token; later ones of a text get less, so that every entry can be told apart."""
    return -(position + token_id / VOCAB_SIZE)


def token_logprobs(position: int, token_id: int, top_count: int) -> TokenLogprobs:
    top = range(top_count)
    return TokenLogprobs(
        logprob=logprob(position, token_id), top_token_ids=top, top_logprobs=[logprob(position, t) for t in top]
    )
