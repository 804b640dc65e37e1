"""The line after an output of several drafts."""

from command.generation.results import summary_line
from specpair.v1 import coordinator_service_pb2 as pb


def test_each_draft_has_its_share() -> None:
    drafts = [
        pb.DraftSummary(name="a", draft_token_count=20, accepted_token_count=12),
        pb.DraftSummary(name="ngram", draft_token_count=9, accepted_token_count=4),
    ]
    speculation = pb.SpeculationSummary(draft_token_count=25, accepted_token_count=13, drafts=drafts)
    assert " · a 12 of 20 · ngram 4 of 9 · " in summary_line(pb.GenerationSummary(speculation=speculation))
    speculation.ClearField("drafts")
    assert "ngram" not in summary_line(pb.GenerationSummary(speculation=speculation))
