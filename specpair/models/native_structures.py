"""The structures of `native/`, in the same order. Every number takes eight bytes."""

from ctypes import Structure, c_double, c_int64, c_uint64, c_void_p


class Product(Structure):
    """Packed weights."""

    _fields_ = [
        *[(name, c_void_p) for name in ("weights", "bias")],
        *[(name, c_int64) for name in ("ins", "outs", "kind")],
        ("scales", c_void_p),
        ("is_bf16", c_int64),
    ]


class Layer(Structure):
    """One decoder layer."""

    _fields_ = [
        ("attention_norm", c_void_p),
        ("query_key_value", Product),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("output", Product),
        ("mlp_norm", c_void_p),
        ("gate_up", Product),
        ("down", Product),
        ("scaling", c_double),
        ("window", c_int64),
    ]


class Model(Structure):
    """A whole model."""

    _fields_ = [
        *[(name, c_int64) for name in ("layer_count", "hidden", "heads", "key_heads", "head_size", "intermediate")],
        ("is_bf16", c_int64),
        ("eps", c_double),
        ("is_embedding_bf16", c_int64),
        *[(name, c_void_p) for name in ("embedding", "cosine", "sine", "norm")],
        ("head", Product),
        ("layers", c_void_p),
        ("first_key", c_int64),
    ]


class Eagle(Structure):
    """An EAGLE-3 head."""

    _fields_ = [
        ("decoder", Model),
        ("pair_norm", c_void_p),
        *[(name, c_int64) for name in ("normalises_residual", "feeds_back_normalised", "tap_count", "tap_size")],
        ("join", Product),
        *[(name, c_void_p) for name in ("tap_norms", "joined_norm")],
        ("key_value", Product),
        ("key_value_start", c_int64),
    ]


class Segment(Structure):
    """Tokens of one sequence."""

    _fields_ = [
        ("keys", c_void_p),
        ("values", c_void_p),
        *[(name, c_int64) for name in ("capacity", "start", "count", "first")],
        ("paths", c_void_p),
    ]


class Pass(Structure):
    """Input, output and memory of one forward pass."""

    _fields_ = [
        *[(name, c_int64) for name in ("token_count", "segment_count", "row_count", "thread_count")],
        *[(name, c_void_p) for name in ("token_ids", "positions", "rows", "segments")],
        *[(name, c_void_p) for name in ("logits", "features", "feature_places")],
        *[(name, c_void_p) for name in ("residual", "projected", "inputs", "gated", "scores")],
        *[(name, c_int64) for name in ("score_count", "input_stride", "projected_stride")],
        ("feature_rows", c_void_p),
        ("feature_row_count", c_int64),
    ]


class Chain(Structure):
    """A proposal to draw, and what was drawn."""

    _fields_ = [
        ("keys", c_void_p),
        ("values", c_void_p),
        *[(name, c_int64) for name in ("capacity", "position", "count", "width", "is_coupled")],
        ("seed", c_uint64),
        *[(name, c_double) for name in ("temperature", "min_confidence")],
        *[(name, c_void_p) for name in ("chosen", "entries", "sizes", "tokens", "shares")],
        ("confidence", c_double),
        *[(name, c_int64) for name in ("length", "is_over", "is_awaited", "look_most", "rank", "race_step")],
        *[(name, c_void_p) for name in ("look_sizes", "look_tokens", "look_shares")],
        ("base", c_int64),
        ("path", c_void_p),
    ]


class Draft(Structure):
    """Proposals that are drawn together."""

    _fields_ = [
        *[(name, c_int64) for name in ("chain_count", "width")],
        *[(name, c_void_p) for name in ("token_ids", "first")],
        ("first_stride", c_int64),
        ("mass", c_double),
        ("most", c_int64),
        ("chains", c_void_p),
        ("stop", c_void_p),
        *[(name, c_int64) for name in ("due", "pass_time", "row_time")],
    ]


class Tree(Structure):
    """A tree to grow, and what has grown."""

    _fields_ = [
        *[(name, c_int64) for name in ("token", "position", "most_nodes", "most_depth")],
        ("seed", c_uint64),
        ("temperature", c_double),
        ("tail", c_void_p),
        *[(name, c_int64) for name in ("tail_count", "free")],
        *[(name, c_void_p) for name in ("tokens", "parents")],
        ("count", c_int64),
    ]
