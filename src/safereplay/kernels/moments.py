"""Mean and variance of numbers that come, and go (Welford 1962): M2 is the sum of squares about the mean."""

from .compile import jit


@jit
def joined(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 with one more number; now there are n."""
    delta = x - mean
    mean += delta / n
    return mean, m2 + delta * (x - mean)


@jit
def parted(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 with one number less: the same step backwards. Now there are n."""
    if n == 0:
        return 0.0, 0.0
    delta = x - mean
    mean -= delta / n
    return mean, max(m2 - delta * (x - mean), 0.0)
