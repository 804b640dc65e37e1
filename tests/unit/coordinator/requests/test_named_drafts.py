"""Which drafts a request is for."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.draft_names import read_drafts
from coordinator.requests.named_drafts import read_draft_names
from specpair.errors import InvalidFieldError, NotSupportedError
from specpair.model_info import ModelInfo
from specpair.options import Drafter, Merge
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from tests.unit.coordinator.fake_sequences import model_info

ENTRIES = ("a=host:1", "a=host:2", "b=host:3", "ngram")
TREE, NONE = pb.MERGE_MODE_TREE, pb.MERGE_MODE_NONE
TARGET = replace(model_info("t0"), runs_trees=True)
DRAFT = replace(model_info("d0"), drafters=(Drafter.MODEL, Drafter.NGRAM, Drafter.UNIFORM))


def config(*entries: str, merge: Merge = Merge.NONE) -> CoordinatorConfig:
    return CoordinatorConfig(
        server=ServerConfig(port=0), target_addresses=("target:1",), draft_addresses=entries, merge=merge
    )


def names(
    fields: dict[str, Any],
    *entries: str,
    merge: Merge = Merge.NONE,
    target: ModelInfo = TARGET,
    draft: ModelInfo | None = DRAFT,
    lenience: float = 1.0,
) -> tuple[str, ...]:
    given = config(*(entries or ENTRIES), merge=merge)
    infos = dict.fromkeys(given.drafts.addresses, draft)
    return read_draft_names(pb.GenerateTokensRequest(**fields), given, target, infos, lenience)


def test_the_entries_of_a_configuration() -> None:
    drafts = read_drafts(ENTRIES)
    assert drafts.addresses == {"a": ("host:1", "host:2"), "b": ("host:3",)} and drafts.names == ("a", "b", "ngram")
    one = read_drafts(["host:1", "host:2"])
    assert one.addresses == {"draft": ("host:1", "host:2")} and not one.is_named
    assert read_drafts(["host:1", "ngram"]).names == ("draft", "ngram")
    assert read_drafts([]).names == () and not read_drafts([]).is_named


@pytest.mark.parametrize(
    "entries",
    [
        ("unigram",),
        ("ngram", "bigram"),
        ("ngram=host:1",),
        ("=host:1",),
        ("a b=host:1",),
        ("a=host",),
        tuple(f"d{i}=host:1" for i in range(9)),
    ],
)
def test_entries_that_cannot_be_used(entries: tuple[str, ...]) -> None:
    with pytest.raises(InvalidFieldError, match="draft"):
        config(*entries)


def test_a_tree_needs_two_drafts() -> None:
    with pytest.raises(InvalidFieldError, match="merge"):
        config("host:1", "host:2", merge=Merge.TREE).check_merge()
    config("host:1", "ngram", merge=Merge.TREE).check_merge()


def test_the_default_is_the_first_draft_or_all() -> None:
    assert names({}) == () and names({}, merge=Merge.TREE) == ("a", "b", "ngram")
    assert names({"merge": NONE}, merge=Merge.TREE) == ()
    assert names({"merge": TREE}) == ("a", "b", "ngram")
    assert names({"drafter": 2}, merge=Merge.TREE) == (), "one drafter is asked for"


CHAINS = replace(TARGET, runs_trees=False)


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ({}, {}, ("ngram",)),
        ({"merge": NONE}, {}, ("ngram",)),
        ({}, {"merge": Merge.TREE}, ("ngram", "prompt-lookup")),
        ({"merge": NONE}, {"merge": Merge.TREE}, ("ngram",)),
        ({}, {"merge": Merge.TREE, "lenience": 0.5}, ("ngram",)),
        ({}, {"merge": Merge.TREE, "target": CHAINS}, ("ngram",)),
        ({"drafts": ["prompt-lookup"]}, {}, ("prompt-lookup",)),
        ({"drafter": 3}, {}, ()),
    ],
)
def test_without_a_service_the_first_that_reads_the_text_is_the_default(
    fields: dict[str, Any], options: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert names(fields, "ngram", "prompt-lookup", **options) == expected


def test_a_request_names_its_own() -> None:
    assert names({"drafts": ["b"]}, merge=Merge.TREE) == ("b",)
    assert names({"drafts": ["uniform", "a"]}) == ("uniform", "a")
    assert names({"drafts": ["bigram"]}, draft=None) == ("bigram",), "while a draft is away its drafters are unknown"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"drafts": ["nobody"]}, r"drafts\[0\]"),
        ({"drafts": ["a", "bigram"]}, r"drafts\[1\]"),
        ({"drafts": ["a", "model"]}, r"drafts\[1\]"),
        ({"drafts": ["a", "eagle"]}, r"drafts\[1\]"),
        ({"drafts": ["a", "a"]}, "twice"),
        ({"drafts": ["x" * 100] * 9}, "drafts: has 9"),
        ({"drafts": ["a", "b"], "merge": NONE}, "merge"),
        ({"merge": 7}, "merge"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidFieldError, match=field):
        names(fields)


def test_one_draft_makes_no_tree() -> None:
    with pytest.raises(InvalidFieldError) as caught:
        names({"merge": TREE}, "host:1")
    said = "merge: is tree; the server has no two drafts, so `drafts` must name several"
    assert caught.value.message == said, "in backticks, which the command reads as the name of a field"


def test_where_no_tree_can_be_judged_it_is_refused_or_left_out() -> None:
    for target, lenience in ((CHAINS, 1.0), (TARGET, 0.5)):
        with pytest.raises(NotSupportedError, match="drafts"):
            names({"drafts": ["a", "b"]}, target=target, lenience=lenience)
        assert names({}, merge=Merge.TREE, target=target, lenience=lenience) == ()
        assert names({"drafts": ["b"]}, target=target, lenience=lenience) == ("b",)
