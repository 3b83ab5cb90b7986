"""Shaped replay in JAX: buffers as pure functions on a pytree, for ``jit``, ``vmap`` and ``scan``; and worlds to train on.

    make_shaped_buffer   draws without keys, by TD errors; v and β may be traced, so one compiled program serves a whole dial
    make_keyed_buffer    draws by pairs (s,a), for small discrete worlds
    TabularWorld         any TabularMDP as an environment
    PointWorld           the point task

The buffers follow the conventions of flashbax, the worlds those of gymnax; neither is needed.
"""

from ..errors import MissingExtra

try:
    import jax as _jax  # noqa: F401
except ImportError:
    raise MissingExtra("safereplay.jax needs jax; install it with: pip install 'safereplay[jax]'") from None

from .replay import Sample as Sample
from .replay import ShapedBuffer as ShapedBuffer
from .replay import make_keyed_buffer as make_keyed_buffer
from .replay import make_shaped_buffer as make_shaped_buffer
from .worlds import PointWorld as PointWorld
from .worlds import TabularWorld as TabularWorld
