"""Where a greedy draft ends a proposal for want of confidence.

It ends it once the probability of its tokens together, by its own account, is below a limit. That should be where the
chance that all of them are accepted falls below the price of a token. How the two are related differs from draft to
draft, so it is learned. For sampled tokens they are hardly related, and proposals do not end so.
"""

import math

FIRST_POWER = 2.0
"""On the bundled pair the acceptance chance is about the root of the probability: 0.33 at 0.1, 0.14 at 0.01."""
LEAST_POWER, MOST_POWER = 1.0, 16.0
"""At the least, probabilities are taken for acceptance chances; at the most, hardly anything ends early."""
RATE = 0.05
"""How fast the power is learned: its greatest relative change at one proposal."""
RETURN = 1.0 / 1024
"""By how much each proposal draws it back to where it began. Else a draft that never ends early would never show that
it should again."""


class Confidence:
    """The limit is a power of the price. If the last tokens of proposals that ended early are accepted more often than
    with that price as their chance, they ended too early, and the power grows; else it falls."""

    def __init__(self) -> None:
        self._power = FIRST_POWER

    def limit(self, price: float) -> float:
        """The probability below which the draft stops, where a token is worth its time from a chance of `price` on."""
        return price**self._power

    def add(self, asked: int, drafted: int, accepted: int, price: float) -> None:
        """Adds a chain of 1 to `asked` tokens, `drafted`, of which `accepted` were; it was asked for at this price."""
        power = self._power + RETURN * (FIRST_POWER - self._power)
        if drafted < asked:
            power *= math.exp(RATE * ((accepted == drafted) - price))
        self._power = min(max(power, LEAST_POWER), MOST_POWER)
