"""The loss that a scheme is equivalent to: uniform replay with that loss has the same limit.

Let a scheme replay an outcome of TD error δ = y − Q(s,a) with probability ŵ ∝ q·g(δ), where y = r + γ·max_b Q(s',b). The expected
update of Q-learning is then

    Σ ŵ·δ  =  Σ q·g(δ)·δ / Σ q·g(δ)

which has the sign of E_q[g(δ)·δ]. This is the expected update of plain replay with a loss L(δ) in place of δ²/2, if

    L'(δ)  =  g(δ)·δ.

So both stand still at the same Q. The denominator is positive; it changes the speed, not the limit. It holds if every update is a
replay: anchored mixing with v = 1 and W = 1. At v < 1 the denominator matters.

    g(δ)                                   L(δ)
    1                                      δ²/2                              squared loss: uniform replay
    1 + κ below 0, 1 − κ above             (1 − κ·sign δ)·δ²/2               asymmetric squared loss: ``ExpectileReplay``
    (1 − e^{−βδ})/(βδ)                     (e^{−βδ} + βδ − 1)/β²             LINEX: ``EntropicReplay``
    |δ|                                    |δ|³/3                            cubic loss: priorities |δ|

The third row is not how ``EntropicReplay`` draws, but has the same limit: E_q[1 − e^{−βδ}] = 0 is Q = −(1/β)·log E_q e^{−βy}.

Ref: Fujimoto, Meger & Precup (2020), An equivalence between loss functions and non-uniform sampling in experience replay; Pan et al.
(2022), Understanding and mitigating the limitations of prioritized experience replay (the cubic loss); Varian (1975), LINEX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from typing import Any, cast

import numpy as np

from .. import _checks
from .._checks import Floats
from ..kernels.compile import jit, parameters
from ..kernels.memory import OF_OUTCOME, STATISTICS
from ..schemes import Scheme, if_seen

NODES = 64  # of the integral of the gradient
TRIED = (-30.0, -1.0, -0.01, 0.01, 1.0, 30.0)  # TD errors at which functions are checked


@dataclass(frozen=True)
class EquivalentLoss:
    """The loss of a scheme; see :func:`equivalent_loss`.

    Parameters
    ----------
    scheme : Scheme

    >>> import safereplay as sr
    >>> found = sr.equivalent_loss(sr.ExpectileReplay(0.5))
    >>> found.weight([-2.0, 2.0]), found.gradient([-2.0, 2.0]), found.loss([-2.0, 2.0])
    (array([1.5, 0.5]), array([-3.,  1.]), array([3., 1.]))
    """

    scheme: Scheme

    def weight(self, delta: Any) -> Floats:
        """g(δ): how often an outcome with this TD error is replayed, relative to how often it happens."""
        errors = np.asarray(delta, np.float64)
        return np.array([_weight(self.scheme, float(x)) for x in errors.ravel()]).reshape(errors.shape)

    def gradient(self, delta: Any) -> Floats:
        """L'(δ) = g(δ)·δ."""
        return self.weight(delta) * np.asarray(delta, np.float64)

    def loss(self, delta: Any) -> Floats:
        """L(δ), the integral of L' from 0, by Gauss–Legendre."""
        errors = np.asarray(delta, np.float64)
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        return np.asarray((self.gradient(errors[..., None] * (nodes + 1.0) / 2.0) * weights).sum(-1) * errors / 2.0)


def equivalent_loss(scheme: Scheme) -> EquivalentLoss:
    """The loss L with which uniform replay has the limit of this scheme, under anchored mixing at v = 1.

    Parameters
    ----------
    scheme : Scheme; one that weights the outcomes of a pair by their TD errors

    Returns
    -------
    EquivalentLoss : with ``weight``, ``gradient`` and ``loss`` of TD errors

    Raises
    ------
    BadInput : the weights are not a function of the TD error

    >>> import numpy as np, safereplay as sr
    >>> linex = sr.equivalent_loss(sr.EntropicReplay(2.0))
    >>> bool(np.isclose(linex.loss(-1.0), (np.exp(2.0) - 2.0 - 1.0) / 4.0))
    True

    Ref: Fujimoto, Meger & Precup (2020); Pan et al. (2022).
    """
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    if scheme.error_weight is None and not scheme.FAITHFUL:
        odd = scheme.bound("log_tilt").names - {"freq", "y", "value", *scheme.params_names()}
        own = scheme.names("value") and type(scheme).pair_weight is if_seen and not odd
        same = own and all(
            np.isclose(_tilt(scheme, x, 0.0, 1.0), _tilt(scheme, x + 3.0, 3.0, 0.5) + log(2.0)) for x in TRIED
        )
        hint = "tilt by y - value and freq alone, with equal pair weights"
        _checks.require(same, "scheme", "weight outcomes by their TD error, to have an equivalent loss", scheme, hint)
    return EquivalentLoss(scheme)


def equivalent_scheme(gradient: Callable[[float], float]) -> Scheme:
    """The scheme that has the limit of a loss L under anchored mixing at v = 1: ŵ ∝ q·L'(δ)/δ.

    Parameters
    ----------
    gradient : function of one float; L', with the sign of its argument, in code that numba can compile

    Returns
    -------
    Scheme : a new class named LossReplay; it cannot be saved to a file, since its function cannot

    Raises
    ------
    BadInput : the gradient has the wrong sign somewhere, or is not finite

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.9, 1, 1.0, True, False), (0, 0, 0.1, 1, -9.0, True, True)]
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, rows, start=0)
    >>> median = sr.equivalent_scheme(lambda delta: 1.0 if delta > 0.0 else -1.0)         # the loss |δ|
    >>> cubic = sr.equivalent_scheme(lambda delta: delta * abs(delta))                    # priorities |δ|
    >>> [float(sr.fixed_point(coin, x, v=1.0, mixing="anchored")[0, 0].round(6)) for x in (median, cubic)]
    [1.0, -1.5]
    """
    for x in TRIED:
        found = float(gradient(x))
        _checks.require(
            isfinite(found) and found * x >= 0.0, f"gradient({x:g})", "be finite, with the sign of its argument", found
        )
    slope = jit(gradient)

    def log_tilt(freq: float, y: float, value: float) -> float:
        delta = y - value
        weight = slope(delta) / delta if delta != 0.0 else 1.0  # without an error the weight has no effect
        return log(freq * weight) if weight > 0.0 else -inf

    made: Any = type("LossReplay", (Scheme,), {"log_tilt": staticmethod(log_tilt), "__doc__": "ŵ ∝ q·L'(δ)/δ."})
    return cast(Scheme, dataclass(frozen=True)(made)())


def _weight(scheme: Scheme, delta: float) -> float:
    if scheme.error_weight is not None:
        names = parameters(scheme.error_weight)[1:]
        return float(scheme.error_weight(delta, *(getattr(scheme, name) for name in names)))
    return 1.0 if scheme.FAITHFUL else exp(_tilt(scheme, delta, 0.0, 1.0))


def _tilt(scheme: Scheme, y: float, value: float, freq: float) -> float:
    """log_tilt of an outcome; the quantities that it does not name are 0."""
    known = {"y": y, "value": value, "freq": freq}
    offered = (known.get(name, 0.0) for name in ("r", *STATISTICS, *OF_OUTCOME))
    return float(scheme.bound("log_tilt").call((*offered, *scheme.params())))
