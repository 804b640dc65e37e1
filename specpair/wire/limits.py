"""Limits of messages that those who make them and those who read them have in common."""

DRAWS_PER_TOKEN = 4
"""Draws of a tree's tokens that a target judges, for each token that a proposal may have. Several drafts, and draws
with replacement, give some tokens more than once (Proposal.draw_nodes)."""
MAX_TOTAL_LOG2 = 30
"""Of the counts of a row, which come as numbers of 32 bits."""
