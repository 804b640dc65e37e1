"""Make a checkpoint larger without changing what it computes: `python -m models.expand --size 100M`.

A pair whose models are small says little about speed, and one that is large is a download. An expansion has the
cost of a large model and the distribution of a small one, so acceptance stays real and cost becomes real. How each
part grows, for a source of width d and an expansion of width D:

- The residual stream is repeated k times, and what is left of D is zero. Norms then average over D channels, so
  their weights are multiplied by sqrt(k d / D) and eps by k d / D; beyond the first d channels they are zero.
  If it can, k makes that factor a power of two, so that even bfloat16 holds it exactly (768 / 256: k = 3, factor 1).
- New attention heads and feed-forward units go into columns of `o_proj` and `down_proj` that are zero. An old query
  head still reads its old key-value head, which is repeated if the new groups are smaller than the old.
- New layers come last; their `o_proj` and `down_proj` are zero, so they add nothing.
- Qwen3 also normalises queries and keys, by the same eps: `q_proj` and `k_proj` are multiplied by sqrt(k d / D) too,
  which gives the same normalised values.
- New tokens get logits of about -1e12, which is the probability zero in float32 and bfloat16: the last channel holds
  a constant, too small for norms and old tokens to notice, for which they have a huge negative weight.

Every other new weight is random. All products are computed in full: nothing knows that some factors are zero.
"""
