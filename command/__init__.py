"""The `specpair` command."""

import specpair  # noqa: F401 - before gRPC
