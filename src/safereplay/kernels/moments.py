"""Running statistics: mean and variance, and n-step returns.

Mean and variance of numbers that are added and removed (Welford 1962): M2 is the sum of squares about the mean.

n-step returns Σ_{k<n} γ^k·r_{t+k}, truncated at the end of the episode.

Each environment has a window of the last n − 1 steps whose return is not known yet. A step adds its reward to all in the
window; then the return of the oldest is known, or of all at the end of an episode.
"""

from .compile import Array, jit, kernel


@jit
def joined(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 after adding a number; n counts it."""
    delta = x - mean
    mean += delta / n
    return mean, m2 + delta * (x - mean)


@jit
def parted(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 after removing a number, the inverse of :func:`joined`; n no longer counts it."""
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
    """Process steps of len(n_open) environments in turn; returns how many returns became known; ``out`` has their slots.

    ``waiting`` and ``sums`` [n_envs, n] are the windows, oldest first; ``out`` has room for all waiting and new steps.
    """
    n_envs, n = waiting.shape
    known = 0
    for k in range(slots.size):
        e = k % n_envs
        waiting[e, n_open[e]], sums[e, n_open[e]] = slots[k], 0.0
        n_open[e] += 1
        discount = 1.0
        for j in range(n_open[e] - 1, -1, -1):  # the newest gets this reward undiscounted
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
