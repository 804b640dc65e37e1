"""Requests whose tokens depend on nothing but themselves, so that an undisturbed run tells what they must be."""

from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2


def repeatable_requests(count: int) -> list[pb.GenerateTokensRequest]:
    """One greedy and two sampled requests for `count` tokens each, under the coupled rule."""
    return [
        pb.GenerateTokensRequest(
            token_ids=pb.TokenIds(ids=[5, 2, 7, seed]),
            max_tokens=count,
            num_speculative_tokens=3,
            rule=sampling_pb2.ACCEPTANCE_RULE_COUPLED,
            sampling={"seed": seed, "temperature": temperature},
        )
        for seed, temperature in ((1, 0.0), (2, 1.0), (3, 0.7))
    ]
