"""Measurements. Speed is measured here, never by a timed test, and given as ratios within one run."""

import specpair  # noqa: F401 - before gRPC
