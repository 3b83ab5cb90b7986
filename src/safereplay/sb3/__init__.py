"""Shaped replay for Stable-Baselines3: one line in a script of DQN, QR-DQN, SAC or TD3.

    from safereplay.sb3 import ShapedReplayBuffer

    model = DQN("MlpPolicy", env, replay_buffer_class=ShapedReplayBuffer)

The algorithm is SB3's, unchanged; only the choice of replayed transitions differs. docs/sb3.md explains all options. ``RiskLimit`` is a callback that moves the dial
until a limit on risk is kept, and certifies the result.
"""

from ..errors import MissingExtra

try:
    import stable_baselines3 as _stable_baselines3  # noqa: F401
except ImportError:
    raise MissingExtra(
        "safereplay.sb3 needs Stable-Baselines3; install it with: pip install 'safereplay[sb3]'"
    ) from None

from .buffers import ShapedDictReplayBuffer, ShapedNStepReplayBuffer, ShapedReplayBuffer
from .callbacks import ShapingCallback, TrainingCheckpoint, load_training, save_training
from .limits import Certificate, RiskLimit
from .stored import ShapingWarning

__all__ = [
    "Certificate",
    "RiskLimit",
    "ShapedDictReplayBuffer",
    "ShapedNStepReplayBuffer",
    "ShapedReplayBuffer",
    "ShapingCallback",
    "ShapingWarning",
    "TrainingCheckpoint",
    "load_training",
    "save_training",
]
