"""The theoretical gain of speculation: acceptance, tokens per round, speedup, operations, the best K, the bound.

Plain Python, so that every process may use it. Only `plot` needs matplotlib, and imports it when it draws.
"""
