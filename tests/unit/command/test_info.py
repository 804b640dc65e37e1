"""What `specpair info` shows."""

from rich.console import Console

from command.info import info_table, is_ready
from specpair.v1 import coordinator_service_pb2 as pb
from specpair.v1 import sampling_pb2
from specpair.v1.drafter_pb2 import DRAFTER_NGRAM, DRAFTER_UNIFORM

NOWHERE = "127.0.0.1:1"


def shown(pair: pb.GetPairInfoResponse) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(info_table(pair, NOWHERE))
    return capture.get()


def test_the_table_shows_what_proposes_and_no_model_where_there_is_none() -> None:
    model = {"model_name": "tiny", "architecture": "LlamaForCausalLM", "vocab_size": 64}
    pair = pb.GetPairInfoResponse(
        draft={"drafters": [DRAFTER_NGRAM, DRAFTER_UNIFORM, 99]},  # type: ignore[typeddict-item]
        target=model,  # type: ignore[arg-type]
        max_num_speculative_tokens=16,
    )
    table = shown(pair)
    assert "ngram, uniform" in table and "an adaptive number of tokens proposed per" in table
    assert table.count("vocabulary") == 1
    pair.num_speculative_tokens = 0
    assert "0 tokens proposed per round" in shown(pair)


def test_the_table_shows_quantised_weights_and_their_divergence() -> None:
    model = {"model_name": "tiny", "architecture": "LlamaForCausalLM", "vocab_size": 64, "dtype": "float32"}
    quantised = {**model, "quantization": "int8", "divergence": {"mean_kl": 0.00421, "greedy_agreement": 0.938}}
    pair = pb.GetPairInfoResponse(draft={**model, "quantization": "none"}, target=quantised)  # type: ignore[arg-type]
    table = shown(pair)
    assert "M, float32, vocabulary 64" in table and "M, int8 (float32), vocabulary 64" in table
    assert table.count("0.0042 nats from the checkpoint, 93.8% of greedy choices") == 1
    pair.draft.ClearField("quantization")  # a service from before the field
    assert "M, float32, vocabulary 64" in shown(pair)


def test_the_caption_says_which_number_of_tokens_is_right() -> None:
    pair = pb.GetPairInfoResponse(draft={}, target={}, max_num_speculative_tokens=16)
    assert "pays" not in shown(pair)
    pair.proposal_worth.output_count, pair.proposal_worth.break_even_acceptance = 1, 0.214
    assert "%" not in shown(pair).split("acceptance of 21%")[1]
    assert "with 1 output a first token pays from an acceptance of 21%" in shown(pair)
    pair.proposal_worth.break_even_acceptance = 8.846
    assert "with 1 output a first token pays at no acceptance" in shown(pair)
    worth = pb.ProposalWorth(output_count=16, break_even_acceptance=0.8, acceptance=0.55, gain=1.0)
    worth.best_num_speculative_tokens = 0
    pair.proposal_worth.CopyFrom(worth)
    text = " ".join(shown(pair).split())
    assert "with 16 outputs a first token pays from an acceptance of 80% · it is 55% · best K 0" in text
    assert "times" not in shown(pair)
    pair.proposal_worth.best_num_speculative_tokens, pair.proposal_worth.gain = 3, 1.417
    assert "best K 3, 1.42 times the tokens/s of K = 0" in " ".join(shown(pair).split())


def test_the_caption_says_what_requests_get_that_set_no_options() -> None:
    pair = pb.GetPairInfoResponse(draft={}, target={})
    assert "the model's" not in shown(pair)
    pair.sampling_defaults.temperature, pair.sampling_defaults.top_k = 0.6, 20
    assert "the model's for requests that set none: temperature 0.6, top_k 20" in shown(pair)


def test_a_pair_is_ready_only_with_both_models() -> None:
    pair = pb.GetPairInfoResponse(draft={}, target={}, has_draft_service=True)
    assert is_ready(pair)
    pair.ClearField("draft")
    assert not is_ready(pair)


def test_the_table_says_how_a_draft_translates_what_an_encoder_reads_and_how_many_beams_there_may_be() -> None:
    model = {"model_name": "tiny", "architecture": "T5ForConditionalGeneration", "vocab_size": 64}
    translation = {"method": 1, "greedy_method": 2, "overlap": 0.958, "shared_token_count": 1670}
    pair = pb.GetPairInfoResponse(
        draft={**model, "translations": [translation]},  # type: ignore[arg-type]
        target={**model, "encoder_decoder": {"max_encoder_len": 512}},  # type: ignore[arg-type]
    )
    text = shown(pair)
    assert "no beam search" in text and "reads at most 512 tokens" in text
    pair.max_num_beams = 16
    assert "at most 16 beams" in shown(pair)
    for said in ("common tokens (TLI); for greedy", "text (SLEM); the target has 96% of its tokens", "1670 in all"):
        assert said in " ".join(text.replace("│", "").split()), text


def test_the_table_says_what_becomes_of_the_proposals_of_several_drafts() -> None:
    pair = pb.GetPairInfoResponse(drafts=[{"name": "near"}, {"name": "far"}], merge=pb.MERGE_MODE_NONE)  # type: ignore[arg-type]
    assert "draft far: not reached · the first proposes alone" in " ".join(shown(pair).split())
    pair.merge = pb.MERGE_MODE_TREE
    assert "draft far: not reached · merged into one tree" in " ".join(shown(pair).split())
    assert "tree" not in shown(pb.GetPairInfoResponse())


def test_a_target_alone_or_with_a_head_is_ready() -> None:
    pair = pb.GetPairInfoResponse(target={"model_name": "tiny"}, has_draft_service=False)  # type: ignore[arg-type]
    assert is_ready(pair) and "not reached" not in shown(pair)
    pair.has_draft_service, pair.rule = True, sampling_pb2.ACCEPTANCE_RULE_COUPLED
    assert not is_ready(pair) and "not reached" in shown(pair) and "rule coupled" in shown(pair)


def test_an_older_or_newer_coordinator_is_not_misread() -> None:
    pair = pb.GetPairInfoResponse(target={"model_name": "tiny"})  # type: ignore[arg-type]
    assert not is_ready(pair) and "not reached" in shown(pair) and "rule" not in shown(pair)
    pair.rule = 99  # type: ignore[assignment]
    assert "rule" not in shown(pair)


def test_a_pair_whose_coordinator_proposes_by_itself_is_ready_without_a_draft() -> None:
    model = {"model_name": "tiny", "architecture": "LlamaForCausalLM", "vocab_size": 64}
    pair = pb.GetPairInfoResponse(drafts=[{"name": "ngram"}], target=model, merge=pb.MERGE_MODE_NONE)  # type: ignore[arg-type]
    assert is_ready(pair) and "not reached" not in shown(pair)
    assert "ngram: in the coordinator · the first proposes alone" in " ".join(shown(pair).split())
    pair.drafts.add(name="far")
    pair.has_draft_service = True
    assert not is_ready(pair) and "draft far: not reached" in " ".join(shown(pair).split())
