"""The runner of encoder-decoder models: T5, mT5, BART and those built like them, with transformers' own code."""

import torch

from specpair.caches.cache import KeyValueCache
from specpair.errors import NotSupportedError
from specpair.models.batch import Batch, PassOutput
from specpair.models.encoder_decoder_attention import DecoderPass
from specpair.models.encoder_decoder_model import EncoderDecoderModel
from specpair.models.loading import LoadedModel
from specpair.sequences.encoder_input import EncoderInput

PROBE = (0,) * 8
"""What the encoder reads for passes of which only the time matters."""


class EncoderDecoderRunner:
    """The encoder runs once for each input, in a pass of its own; the decoder over packed rows, through the cache."""

    description = "plain (transformers), an encoder and a decoder"
    no_trees = ""

    def __init__(self, loaded: LoadedModel, cache: KeyValueCache):
        self.cache = cache
        self.device = loaded.facts.device
        self._model = EncoderDecoderModel(loaded.model)
        self._probe = EncoderInput(PROBE)

    def encode(self, encoder_input: EncoderInput) -> None:
        """Runs the encoder over an input, and keeps what every pass of the decoder needs of it."""
        encoder_input.state = self._model.record(encoder_input.token_ids).encoding

    @torch.inference_mode()
    def forward(self, batch: Batch) -> PassOutput:
        if batch.feature_layers:
            raise NotSupportedError("feature_layers: encoder-decoder models give none")
        inputs = batch.encoder_inputs or [self._probe] * len(batch.segments)
        for encoder_input in inputs:
            if encoder_input.state is None:
                self.encode(encoder_input)
        encodings = [encoder_input.state for encoder_input in inputs]
        access = self.cache.access(batch.segments)
        attention = DecoderPass(access, batch.segments, batch.parents, encodings, self.device)
        return PassOutput(self._model.decode(batch.token_ids, batch.positions, batch.rows, attention))
