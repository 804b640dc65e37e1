"""The draft service: proposes tokens with a small model."""

import specpair  # noqa: F401 - before gRPC
