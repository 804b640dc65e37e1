"""How the tokens of a request are drawn: by what it says, else by what the model says."""

import secrets
from dataclasses import replace

from specpair.model_info import ModelInfo, SamplingDefaults
from specpair.options import SamplingOptions, check_count
from specpair.rpc.messages import sampling_from_proto
from specpair.v1 import coordinator_service_pb2 as pb

MAX_REQUESTED_STOP_TOKENS = 64
DRAWN_SEED_BITS = 53
"""Size of seeds drawn here: every JSON reader can represent such a number exactly."""
BEAM_DEFAULTS = SamplingDefaults(temperature=0.0)
"""A beam search draws nothing, and is the plain one whatever the model says of drawing."""


def read_sampling(message: pb.GenerateTokensRequest, target: ModelInfo, defaults: SamplingDefaults) -> SamplingOptions:
    """The options, with a seed drawn here if none is given; it is reported, so that any output can be repeated.

    They are fixed from here on: a request that moves to another target keeps them. Raises InvalidFieldError.
    """
    given = message.sampling
    check_count("sampling.stop_token_ids", len(given.stop_token_ids), MAX_REQUESTED_STOP_TOKENS)
    sampling = sampling_from_proto(given)
    applied = BEAM_DEFAULTS if message.HasField("num_beams") else defaults
    unset = {name: value for name, value in applied.given.items() if not given.HasField(name)}
    own = () if message.ignore_eos else [i for i in target.eos_token_ids if i < target.vocab_size]
    seed = sampling.seed if given.HasField("seed") else secrets.randbits(DRAWN_SEED_BITS)
    sampling = replace(sampling, stop_token_ids=(*sampling.stop_token_ids, *own), seed=seed, **unset)
    sampling.check_vocabulary(target.vocab_size)
    return sampling
