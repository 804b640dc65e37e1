"""How large messages may be: the same numbers on both sides of a connection."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message on any channel, both ways; gRPC's own limit is 4 MiB, one dense proposal at V = 128k."""
MAX_TOGETHER_BYTES = 1024 * 1024
"""Up to this size calls of a hot stream, or their answers, travel in one message; a larger one travels alone."""

MAX_TOGETHER_CALLS = 1024
"""Most calls, or answers, in one message of a hot stream."""
MAX_PLAIN_BYTES = 4 * 1024 * 1024
"""Of a request that carries no distributions, as of a body over HTTP. To make messages of bytes takes the event loop up
to 0.1 s a MiB, and it is done before anybody is asked."""
DISTRIBUTION_METHODS = frozenset(
    f"/specpair.v1.TargetService/{name}" for name in ("VerifyProposal", "StreamVerifications")
)
