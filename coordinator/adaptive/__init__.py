"""How many tokens to propose, decided anew for each output and round.

Pure: times come in as numbers; no clock is read and nothing is sent. All outputs of a coordinator share one
`LengthController`; each output has its own `OutputLength`.
"""

from coordinator.adaptive.ahead_trials import AheadTrials
from coordinator.adaptive.beam_lengths import BeamLengths
from coordinator.adaptive.controller import LengthController
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.output_length import PLAIN, Decision, OutputLength
from coordinator.adaptive.worth import Worth

__all__ = [
    "PLAIN",
    "AheadTrials",
    "BeamLengths",
    "Decision",
    "LengthController",
    "OutputLength",
    "RoundOutcome",
    "Worth",
]
