"""`python -m bench.gpu`: what a GPU makes of captured passes, drawn proposals and the pair."""
