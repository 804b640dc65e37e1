"""Does speculation change anything? What to draw, the tests of what was drawn, and what they could have seen.

Plain data and statistics: `plan` says which requests to make, whoever can reach a coordinator makes them, `judgement`
compares what came back. Nothing here knows grpc or torch; only `g_test` and `power` need scipy.
"""
