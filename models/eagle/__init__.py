"""Train an EAGLE-3-shaped head for SmolLM2-135M-Instruct: `python -m models.eagle STEP`.

train       over the conversations of `models.smollm2`; the target's features are computed once and kept on disk
measure     held-out agreement, overlap and tokens per round for each K and category
publish     the last checkpoint into a folder, in the layout of `vllm-project/speculators`
"""
