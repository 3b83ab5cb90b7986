"""Running statistics: mean and variance, and n-step returns.

Mean and variance of numbers that come, and go (Welford 1962): M2 is the sum of squares about the mean.

n-step returns as they become known: Σ_{k<n} γ^k·r_{t+k}, cut off where the episode ends.

Each environment has a window of the last n − 1 steps whose return is not known yet. A step adds its reward to all in the
window; then the oldest is known, or, at the end of an episode, all are.
"""

from .compile import Array, jit, kernel


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


@kernel
def returns(
    slots: Array,
    rewards: Array,
    ends: Array,
    gamma: float,
    n_open: Array,
    waiting: Array,
    sums: Array,
    out: Array,
    out_x: Array,
) -> int:
    """Steps of len(n_open) environments in turn: gives how many slots are now known, in ``out``, with their returns.

    ``waiting`` and ``sums`` [n_envs, n] are the windows, oldest first; ``out`` has room for all that may be waiting or come.
    """
    n_envs, n = waiting.shape
    known = 0
    for k in range(slots.size):
        e = k % n_envs
        waiting[e, n_open[e]], sums[e, n_open[e]] = slots[k], 0.0
        n_open[e] += 1
        discount = 1.0
        for j in range(n_open[e] - 1, -1, -1):  # the newest sees this reward undiscounted
            sums[e, j] += discount * rewards[k]
            discount *= gamma
        leaving = n_open[e] if ends[k] else n_open[e] // n  # all, or the oldest of a full window
        for j in range(leaving):
            out[known], out_x[known] = waiting[e, j], sums[e, j]
            known += 1
        for j in range(leaving, n_open[e]):
            waiting[e, j - leaving], sums[e, j - leaving] = waiting[e, j], sums[e, j]
        n_open[e] -= leaving
    return known
