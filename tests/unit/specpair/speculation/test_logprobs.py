import torch

from specpair.speculation.logprobs import token_logprobs


def test_logprobs_are_those_of_the_row() -> None:
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    expected = logits.log_softmax(-1)
    entries = token_logprobs(logits, [4, 0, 199], [0, 3, 20])
    assert [entry.logprob for entry in entries] == [expected[0, 4], expected[1, 0], expected[2, 199]]
    assert [len(entry.top_token_ids) for entry in entries] == [0, 3, 20]
    assert entries[2].top_token_ids == expected[2].topk(20).indices.tolist()
    assert entries[1].top_logprobs == expected[1].topk(3).values.tolist()


def test_no_more_than_the_vocabulary_is_reported() -> None:
    [entry] = token_logprobs(torch.tensor([[0.0, 1.0]]), [0], [20])
    assert entry.top_token_ids == [1, 0]
