"""Histogram samples with an exemplar that names the trace of their request."""

from prometheus_client import Histogram

from specpair.tracing import current_trace_id

LONGEST_TRACE_ID = 64
"""A trace id has 32 characters; an exemplar has room for 128 in all."""


def observe(histogram: Histogram, value: float, count: int = 1) -> None:
    """Adds the sample `count` times, with the trace id if the request has one."""
    trace_id = current_trace_id()
    exemplar = {"trace_id": trace_id} if trace_id and len(trace_id) <= LONGEST_TRACE_ID else None
    for _ in range(count):
        histogram.observe(value, exemplar)
