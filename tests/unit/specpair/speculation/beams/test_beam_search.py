"""A beam search by hand: steps, ends, scores; groups of beams; growth."""

import itertools
import math
import random

import pytest

from specpair.errors import InvalidFieldError
from specpair.speculation.beams.beam_growth import BeamGrowth, GrowthPlan
from specpair.speculation.beams.beam_options import BeamOptions, EarlyStopping
from specpair.speculation.beams.beam_search import Beam, BeamSearch, Continuation
from specpair.speculation.beams.beam_tree import ROOT, BeamTree, grouped
from specpair.speculation.beams.single_precision import single

VOCABULARY = 8


def row_after(tokens: tuple[int, ...]) -> list[Continuation]:
    """Log probabilities that depend on the tokens before, most likely first."""
    chances = [random.Random(f"{tokens} {token}").random() ** 3 for token in range(VOCABULARY)]
    row = [Continuation(token, single(math.log(chance / sum(chances)))) for token, chance in enumerate(chances)]
    return sorted(row, key=lambda one: -one.logprob)


def run(options: BeamOptions) -> BeamSearch:
    search = BeamSearch(options)
    while not search.is_over:
        search.step([row_after(beam.tokens)[: options.top_count] for beam in search.running])
    return search


def test_enough_beams_find_the_likeliest_output() -> None:
    """With as many beams as there are prefixes nothing is lost: the best beams are the best of all outputs."""
    found = run(BeamOptions(num_beams=16, max_tokens=2, length_penalty=0.0)).finished
    scores = {
        tokens: sum(
            next(one.logprob for one in row_after(tokens[:place]) if one.token == token)
            for place, token in enumerate(tokens)
        )
        for tokens in itertools.product(range(VOCABULARY), repeat=2)
    }
    best = sorted(scores, key=lambda tokens: -scores[tokens])[:16]
    assert [beam.tokens for beam in found] == best
    assert [beam.score for beam in found] == pytest.approx([scores[tokens] for tokens in best], rel=1e-6)


def test_a_stop_token_ends_a_beam() -> None:
    search = run(BeamOptions(num_beams=2, max_tokens=12, stop_token_ids=frozenset({3})))
    assert len(search.finished) == 2
    for beam in search.finished:
        assert 3 not in beam.tokens[:-1]
        assert beam.tokens[-1] == 3 or len(beam.tokens) == 12


def test_no_stop_token_before_min_tokens() -> None:
    search = run(BeamOptions(num_beams=2, max_tokens=12, min_tokens=5, stop_token_ids=frozenset({1, 3, 6})))
    assert all(not {1, 3, 6} & set(beam.tokens[:5]) for beam in search.finished)


def test_the_first_beams_end_the_search() -> None:
    stops = frozenset({0, 1, 3})
    first, never = (
        run(BeamOptions(num_beams=2, max_tokens=12, early_stopping=stopping, stop_token_ids=stops))
        for stopping in (EarlyStopping.FIRST, EarlyStopping.NEVER)
    )
    assert first.running, "beams were running when it ended"
    assert first.finished[0].score <= never.finished[0].score


def test_options_have_limits() -> None:
    for changes, field in (
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 17}, "num_beams"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"num_beams": 16, "stop_token_ids": frozenset(range(40))}, "num_beams"),
    ):
        with pytest.raises(InvalidFieldError) as caught:
            BeamOptions(**{"num_beams": 2, "max_tokens": 4, **changes})  # type: ignore[arg-type]
        assert caught.value.metadata["field"] == field
    with pytest.raises(InvalidFieldError):
        BeamOptions(num_beams=4, max_tokens=4).check_vocabulary(7)


BEAMS = [
    Beam(tokens=tokens, score=-float(number))
    for number, tokens in enumerate([(1, 2, 3, 4), (1, 2, 3, 5), (1, 6, 7, 8), (1, 2, 9, 9)])
]


def test_one_group_if_it_fits() -> None:
    [group] = grouped(BEAMS, 100)
    assert group.prefix == (1,)
    assert len(group.tree) == 9 and group.depth == 0
    assert group.asked == group.nodes == [group.node(beam.tokens) for beam in BEAMS]
    assert group.node((1, 2, 3, 6)) is None and group.node((2,)) is None


@pytest.mark.parametrize(("most", "room"), [(0, 100), (4, 100), (100, 5), (100, 4)])
def test_groups_fit(most: int, room: int) -> None:
    groups = grouped(BEAMS, room, most)
    assert sorted(beam.tokens for group in groups for beam in group.beams) == sorted(beam.tokens for beam in BEAMS)
    for group in groups:
        assert len(group.tree) <= most
        assert len(group.prefix) + len(group.tree) <= max(room, 4)
        for beam, node in zip(group.beams, group.nodes, strict=True):
            assert group.node(beam.tokens) == node


def test_growth() -> None:
    """It continues the best beams, never beyond a stop token, and never by more than the tree may have."""
    tree = BeamTree()
    ends = [tree.add_path([1, 2]), tree.add_path([3, 4])]
    plan = GrowthPlan(depth=3, width=3, max_nodes=11, stop_token_ids=frozenset({0}))
    growth = BeamGrowth(plan, tree, ends, [-1.0, -1.5])
    sizes = []
    while growth.frontier:
        growth.extend([row_after((node,)) for node in growth.frontier])
        sizes.append(len(tree))
    assert sizes == [7, 10, 11]
    assert 0 not in tree.tokens[growth.first :]
    assert all(parent in ends for parent in tree.parents[4:7])
    assert not BeamGrowth(GrowthPlan(depth=3, width=3, max_nodes=4), tree, [ROOT], [0.0]).frontier


def test_single_precision() -> None:
    assert single(0.1) != 0.1 and single(single(0.1)) == single(0.1)
    assert single(1e300) == math.inf and single(-1e300) == -math.inf
