"""An encoder-decoder model whose decoder runs on packed rows of tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specpair.models.encoder_decoder_attention import DecoderAttention, DecoderRecorder


class EncoderDecoderModel:
    """The two halves of a model, and what it takes to feed the decoder packed rows."""

    def __init__(self, model: PreTrainedModel):
        self._model: Any = model
        self._start = decoder_start(model) or 0
        self._head: Any = model.get_output_embeddings()
        self._positions: Any = getattr(self._model.get_decoder(), "embed_positions", None)
        self._no_states = torch.zeros(1, 1, model.config.hidden_size, dtype=model.dtype, device=model.device)
        """In place of the encoder's output, whose keys and values are there already."""

    @torch.inference_mode()
    def record(self, token_ids: Sequence[int]) -> DecoderRecorder:
        """What the layers compute for an input of the encoder and the first token of the decoder."""
        states = self._model.get_encoder()(input_ids=self._tensor(token_ids)[None]).last_hidden_state
        recorder = DecoderRecorder()
        self._run([self._start], states, recorder)
        return recorder

    def decode(
        self, token_ids: Sequence[int], positions: Sequence[int], rows: Sequence[int], attention: DecoderAttention
    ) -> Tensor:
        """Logits `[rows, vocabulary]` of the tokens at the indices `rows`."""
        with choosing(self._head, self._tensor(rows)), placing(self._positions, self._tensor(positions)):
            return self._run(token_ids, self._no_states, attention)

    def _run(self, token_ids: Sequence[int], states: Tensor, attention: DecoderAttention) -> Tensor:
        output = self._model(
            encoder_outputs=(states,),
            decoder_input_ids=self._tensor(token_ids)[None],
            use_cache=False,
            decoder_pass=attention,
        )
        return output.logits[0].float()

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._model.device)


def decoder_start(model: Any) -> int | None:
    """The token that every output begins after; None if the model does not say."""
    generation = getattr(model, "generation_config", None)
    start = getattr(generation, "decoder_start_token_id", None)
    return getattr(model.config, "decoder_start_token_id", None) if start is None else start


@contextmanager
def choosing(head: Any, rows: Tensor) -> Iterator[None]:
    """Inside the context the head multiplies these rows alone."""
    hook = head.register_forward_pre_hook(lambda module, inputs: (inputs[0][:, rows],))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def placing(embedding: Any, positions: Tensor) -> Iterator[None]:
    """Inside the context the tokens have these positions, for models that learn an embedding of each."""
    if embedding is None:
        yield
        return

    def place(module: Any, inputs: Any, keywords: dict[str, Any]) -> Any:
        return inputs, {**keywords, "position_ids": positions}

    hook = embedding.register_forward_pre_hook(place, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
