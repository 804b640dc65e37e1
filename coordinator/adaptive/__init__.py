"""How many tokens to propose, decided anew for each output and round.

Pure: times come in as numbers, nothing is read from a clock, nothing is sent. `LengthController` is what all outputs of
a coordinator share, `OutputLength` what one of them has for itself.
"""

from coordinator.adaptive.controller import LengthController
from coordinator.adaptive.outcome import RoundOutcome
from coordinator.adaptive.output_length import Decision, OutputLength

__all__ = ["Decision", "LengthController", "OutputLength", "RoundOutcome"]
