"""What `specpair up --draft` may name."""

import pytest

from command.failures import CommandError
from command.pair.several_drafts import several_drafts
from coordinator.draft_names import read_drafts

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"


@pytest.mark.parametrize(
    ("text", "services", "expected"),
    [
        (None, [HERE], HERE),
        ("bundled", [HERE], HERE),
        ("/models/some.gguf", [HERE], HERE),
        ("bundled,ngram", [HERE], f"bundled={HERE},ngram"),
        ("ngram,a=bundled,b=org/Model-1B", [HERE, THERE], f"ngram,a={HERE},b={THERE}"),
        ("bundled,/models/1 small", [HERE, THERE], f"bundled={HERE},small={THERE}"),
        ("ngram,bigram", [HERE], f"{HERE},ngram,bigram"),
    ],
)
def test_the_coordinator_is_told_where_they_are(text: str | None, services: list[str], expected: str) -> None:
    drafts = several_drafts(text)
    assert drafts.addresses(services) == expected
    read_drafts(expected.split(","))


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(CommandError, match="a=/one/draft,b=/two/draft"):
        several_drafts("/one/draft,/two/draft")
