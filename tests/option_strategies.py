"""Random sampling options, alone and in combination."""

from typing import Any

from hypothesis import strategies as st

from specpair.options import SamplingOptions


def sampling_options(vocab_size: int, *, greedy: bool | None = None) -> st.SearchStrategy[SamplingOptions]:
    """Any combination of options over a small vocabulary; at least one token is neither banned nor a stop token."""
    tokens = st.integers(1, vocab_size - 1)
    temperatures = {True: st.just(0.0), False: st.floats(0.3, 2.0), None: st.one_of(st.just(0.0), st.floats(0.3, 2.0))}
    fields: dict[str, st.SearchStrategy[Any]] = {
        "top_k": st.integers(1, vocab_size),
        "top_p": st.floats(0.3, 1.0),
        "min_p": st.floats(0.0, 0.6),
        "repetition_penalty": st.floats(0.5, 2.0),
        "presence_penalty": st.floats(-2.0, 2.0),
        "frequency_penalty": st.floats(-2.0, 2.0),
        "logit_bias": st.dictionaries(tokens, st.floats(-3.0, 3.0), max_size=3).map(lambda bias: tuple(bias.items())),
        "allowed_token_ids": st.lists(tokens, max_size=vocab_size - 1).map(lambda ids: (0, *ids)),
        "banned_token_ids": st.lists(tokens, max_size=2).map(tuple),
        "min_tokens": st.integers(0, 5),
        "stop_token_ids": st.lists(tokens, max_size=2).map(tuple),
    }
    chosen = st.fixed_dictionaries({"temperature": temperatures[greedy]}, optional=fields)
    return chosen.map(_options)


def _options(values: dict[str, Any]) -> SamplingOptions:
    return SamplingOptions(**values)
