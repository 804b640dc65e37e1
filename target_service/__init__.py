"""The target service: verifies proposals with the target model."""

import specpair  # noqa: F401 - before gRPC
