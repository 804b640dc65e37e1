"""Tests whether speculation changes outputs: the requests, the statistical tests, and their power.

Plain data and statistics: `plan` says which requests to make, a client of a coordinator makes them, and `judgement`
compares the outputs. Nothing here imports grpc or torch; only `g_test` and `power` need scipy.
"""
