"""How likely the outcomes of a step are. Pure."""

PRIOR_ACCEPTANCE = 0.7
PRIOR_CORRECTION = (0.35, 0.12, 0.07, 0.05, 0.03, 0.02, 0.02, 0.01)
PRIOR_BONUS = (0.6, 0.14, 0.07, 0.04, 0.03, 0.02, 0.02, 0.01)


class Odds:
    """Chances of the outcomes of a proposal of K tokens."""

    def of_counts(self, length: int) -> list[float]:
        """[K + 1]: the chance of each accepted count."""
        a = PRIOR_ACCEPTANCE
        return [a**n * (1 - a) for n in range(length)] + [a**length]

    def of_ranks(self, is_bonus: bool) -> tuple[float, ...]:
        """The chance of each guess, by its rank."""
        return PRIOR_BONUS if is_bonus else PRIOR_CORRECTION
