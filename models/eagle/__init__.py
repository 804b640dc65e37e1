"""Train an EAGLE-3-shaped head for SmolLM2-135M-Instruct: `python -m models.eagle STEP`.

train       over conversations of `models.smollm2` that were generated with `--features 8,15,22,27,30`
measure     held-out agreement, overlap and tokens per round for each K and category
publish     the last checkpoint into a folder, in the layout of `vllm-project/speculators`
"""
