"""x = b + P·x, the linear equation behind every value of a fixed policy."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from .._types import Floats

DENSE = 300  # states up to which a dense solve is the faster one


def solve(P: Any, b: Floats) -> Floats:
    """The x with x = b + P·x, for a sparse P [S, S] whose powers vanish."""
    if b.size <= DENSE:
        return np.linalg.solve(np.eye(b.size) - P.toarray(), b)
    return np.asarray(spsolve(sparse.csc_array(sparse.eye_array(b.size) - P), b))
