"""SB3's ``load_replay_buffer`` takes whatever buffer was saved. A plain one makes a shaped model plain: that is said here.

SB3 calls nothing of ours there, so its method is wrapped when :mod:`safereplay.sb3` is imported. What it does is unchanged.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from .advice import advise
from .buffers import ShapedReplayBuffer

_load: Any = OffPolicyAlgorithm.load_replay_buffer


@wraps(_load)
def load_replay_buffer(self: OffPolicyAlgorithm, *args: Any, **kwargs: Any) -> None:
    """SB3's own, and a warning if a shaped model has a plain buffer after it."""
    _load(self, *args, **kwargs)
    wanted = self.replay_buffer_class
    shaped = isinstance(wanted, type) and issubclass(wanted, ShapedReplayBuffer)
    if wanted is not None and shaped and not isinstance(self.replay_buffer, ShapedReplayBuffer):
        kind, name = type(self.replay_buffer).__name__, wanted.__name__
        how = f"model.replay_buffer = {name}.from_buffer(model.replay_buffer, **model.replay_buffer_kwargs)"
        advise(f"the loaded buffer is a plain {kind}, so replay is not shaped any more; {how}")


def look_at_loading() -> None:
    """Wrap SB3's method, once."""
    if OffPolicyAlgorithm.load_replay_buffer is _load:
        setattr(OffPolicyAlgorithm, "load_replay_buffer", load_replay_buffer)  # noqa: B010  (mypy: a method is no variable)
