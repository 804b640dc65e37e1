"""The counts of an answer: of all outputs together, and of each of several drafts."""

from specpair.rpc.generation_metrics import generation_metrics, total
from specpair.v1 import coordinator_service_pb2 as pb


def summary(**speculation: object) -> pb.GenerationSummary:
    return pb.GenerationSummary(speculation=pb.SpeculationSummary(**speculation))  # type: ignore[arg-type]


def shown(whole: pb.GenerationSummary) -> dict[str, object]:
    document = generation_metrics(whole)["speculative_decoding"]
    assert isinstance(document, dict)
    return document


def test_drafts_and_guesses_are_shown_where_there_are_any() -> None:
    assert not {"drafts", "own_draft"} & shown(summary()).keys()
    one = pb.DraftSummary(name="a", draft_round_count=1, draft_token_count=3, accepted_token_count=2, late_count=0)
    assert shown(summary(drafts=[one]))["drafts"] == [
        {"name": "a", "draft_round_count": 1, "draft_token_count": 3, "accepted_token_count": 2, "late_count": 0}
    ]


def test_the_outputs_of_a_request_add_up() -> None:
    a, b = pb.DraftSummary(name="a", draft_token_count=3), pb.DraftSummary(name="b", late_count=1)
    guesses = pb.OwnDraftSummary(guessed_token_count=4, accepted_guess_count=1, pass_count=2)
    whole = shown(total([summary(drafts=[a, b]), summary(drafts=[a], own_draft=guesses), summary(own_draft=guesses)]))
    drafts = whole["drafts"]
    assert isinstance(drafts, list)
    assert [(own["name"], own["draft_token_count"], own["late_count"]) for own in drafts] == [("a", 6, 0), ("b", 0, 1)]
    assert whole["own_draft"] == {"guessed_token_count": 8, "accepted_guess_count": 2, "pass_count": 4}


def test_every_count_adds_up_and_is_shown() -> None:
    fields = pb.SpeculationSummary.DESCRIPTOR.fields
    counts = [field.name for field in fields if field.type in (field.TYPE_UINT32, field.TYPE_UINT64)]
    counts = [name for name in counts if not name.endswith("per_position")]
    values = {name: 7 + place for place, name in enumerate(counts)}
    whole = total([summary(**values), summary(**values)])
    assert {name: getattr(whole.speculation, name) for name in counts} == {name: 2 * values[name] for name in counts}
    assert {2 * value for value in values.values()} <= {v for v in shown(whole).values() if isinstance(v, int)}
