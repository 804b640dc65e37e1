"""A tiny pair of T5 models, trained on a task that is generated: `python -m models.t5`."""
