"""Runs a forward pass over chunks of works."""

from specpair.caches.holding import Segment
from specpair.engine.scheduler import Chunk
from specpair.models.batch import Batch, PassOutput
from specpair.models.runner import Runner


def run_pass(runner: Runner, chunks: list[Chunk]) -> PassOutput:
    """Feeds chunks for which the cache has room. The output has the rows of the works that the chunks complete."""
    batch = batch_of(chunks)
    output = runner.forward(batch)
    for work, _, completes in chunks:
        assert work.sequence.holding is not None
        # A tree's tokens are no text: they are valid only once a path is kept.
        tree = len(work.parents or ()) if completes else 0
        work.sequence.valid_length = work.sequence.holding.length - tree
    if batch.feature_layers:
        hand_out_features(chunks, batch.feature_layers, output)
    return output


def batch_of(chunks: list[Chunk]) -> Batch:
    segments: list[Segment] = []
    token_ids: list[int] = []
    row_counts: list[int] = []
    layers: set[int] = set()
    for work, count, completes in chunks:
        holding = work.sequence.holding
        assert holding is not None
        start = holding.length - count
        segments.append(Segment(holding, start, count))
        token_ids.extend(work.sequence.tokens[start : start + count])
        row_counts.append(work.row_count if completes else 0)
        if completes:
            layers.update(work.feature_layers)
    asked = tuple(sorted(layers))
    inputs = [found for work, *_ in chunks if (found := work.sequence.encoder_input) is not None]
    if any(chunk.completes and chunk.work.parents for chunk in chunks):
        return Batch.of_trees(segments, token_ids, row_counts, parents_of(chunks), asked, inputs)
    return Batch.of_chains(segments, token_ids, row_counts, asked, inputs)


def parents_of(chunks: list[Chunk]) -> list[int | None]:
    """For each token of the pass the index of its parent, None for the first of a chunk. Rows are never split, so the
    chunk with a tree has the token before it too."""
    parents: list[int | None] = []
    for work, count, completes in chunks:
        first = len(parents)
        tree = (work.parents or ()) if completes else ()
        root = first + count - len(tree) - 1
        parents += [None, *range(first, root)]
        parents += [root + 1 + parent for parent in tree]
    return parents


def hand_out_features(chunks: list[Chunk], layers: tuple[int, ...], output: PassOutput) -> None:
    """Gives each work the hidden states of its own rows and layers."""
    assert output.features is not None
    places = {layer: place for place, layer in enumerate(layers)}
    first = 0
    for work, _, completes in chunks:
        if not completes:
            continue
        if work.feature_layers:
            own = [places[layer] for layer in work.feature_layers]
            work.features = output.features[own, first : first + work.row_count]
        first += work.row_count
