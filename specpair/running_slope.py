"""Running estimate of how much one quantity grows with another."""


class RunningSlope:
    """Least squares with exponential decay, through the means."""

    __slots__ = ("_x", "_y", "count", "covariance", "mean_memory", "memory", "variance")

    def __init__(self, memory: int, mean_memory: int | None = None):
        self.count = 0
        self.covariance = 0.0
        """Decayed sum of the products of the deviations of x and y."""
        self.variance = 0.0
        """Decayed sum of squared deviations of x."""
        self.memory = memory
        """Number of samples to average over; may be changed at any time."""
        self.mean_memory = mean_memory or memory
        """Number of samples for the means alone. If it is small, a sample is compared with those just before it, so
        that a drift of y does not pass for an effect of x."""
        self._x = 0.0
        self._y = 0.0

    def add(self, x: float, y: float) -> None:
        self.count += 1
        weight = 1.0 / min(self.count, self.mean_memory)
        off_x, off_y = x - self._x, y - self._y
        self._x += weight * off_x
        self._y += weight * off_y
        keep = 1.0 - 1.0 / self.memory
        self.covariance = keep * self.covariance + (1.0 - weight) * off_x * off_y
        self.variance = keep * self.variance + (1.0 - weight) * off_x * off_x

    def slope(self, prior: float, prior_weight: float) -> float:
        """The slope, at least 0. The prior counts like samples whose squared deviations of x sum to `prior_weight`."""
        return max((self.covariance + prior_weight * prior) / (self.variance + prior_weight), 0.0)

    def intercept(self, slope: float) -> float:
        """The y at x = 0 of the line through the means."""
        return self._y - slope * self._x
