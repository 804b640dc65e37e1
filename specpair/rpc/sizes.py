"""Limits of message sizes, the same on both sides of a connection."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message on any channel, in both directions. gRPC's default of 4 MiB is one dense proposal at V = 128k."""
MAX_TOGETHER_BYTES = 1024 * 1024
"""Calls of a hot stream, or their answers, share one message up to this size; a larger one is sent alone."""

MAX_TOGETHER_CALLS = 1024
"""Most calls, or answers, in one message of a hot stream."""
MAX_PLAIN_BYTES = 4 * 1024 * 1024
"""Largest request without distributions, and largest HTTP body. Decoding holds up the event loop for up to 0.1 s per
MiB, and happens before any check."""
DISTRIBUTION_METHODS = frozenset(
    f"/specpair.v1.TargetService/{name}" for name in ("VerifyProposal", "StreamVerifications")
)
