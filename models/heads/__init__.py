"""Heads for the bundled target: `python -m models.heads KIND`, with one thread in minutes.

medusa      independent heads over the last hidden state; their greedy form is blockwise parallel decoding
pass        embeddings that stand for tokens to come
measure     held-out acceptance of both, and of the bundled draft, on text that the target wrote
"""
