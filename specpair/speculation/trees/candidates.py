"""What may follow the nodes of a tree that is grown of the likeliest continuations."""

from collections.abc import Sequence

from torch import Tensor

from specpair.options import Rule, SamplingOptions, SequenceOptions
from specpair.speculation.gumbel import choose_and_look
from specpair.speculation.outlook import WIDTH, Outlook, of_logits
from specpair.speculation.sampling import SamplingRows, probabilities


def is_ranked(options: SequenceOptions) -> bool:
    """Whether any tree is exact, so that the likeliest tokens are taken and nothing is drawn."""
    return options.rule is Rule.COUPLED or options.sampling.is_greedy


def shares(samplings: Sequence[SamplingOptions], rows: Tensor) -> Tensor:
    """The distributions `[rows, vocabulary]` of adjusted logits."""
    return probabilities(rows, SamplingRows(list(samplings), [1] * len(samplings), rows.device))


def looked_at(samplings: Sequence[SamplingOptions], positions: Sequence[int], rows: Tensor) -> list[Outlook]:
    """The best tokens of each row of adjusted logits `[rows, vocabulary]`: of greedy sequences the likeliest, of others
    those that the target is likely to choose with the noise of the position that the row decides."""
    outlooks = of_logits(rows)
    coupled = [row for row, sampling in enumerate(samplings) if not sampling.is_greedy]
    if coupled:
        own = [samplings[row] for row in coupled]
        seeds, where = [sampling.seed for sampling in own], [positions[row] for row in coupled]
        found = choose_and_look(shares(own, rows[coupled]), seeds, where, WIDTH)[1]
        for row, outlook in zip(coupled, found, strict=True):
            outlooks[row] = outlook
    return outlooks
