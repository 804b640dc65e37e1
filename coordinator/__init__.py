"""The coordinator: serves clients, owns the tokens, runs the rounds."""

import specpair  # noqa: F401 - before gRPC
