"""What speculation can gain, by calculation: acceptance, tokens per round, speed, operations, the best K, the bound.

Plain Python throughout, so that every process may use it; only drawing (`plot`) needs matplotlib, and loads it when it
draws.
"""
