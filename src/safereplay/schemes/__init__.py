"""Schemes: what is replayed. One file each; :mod:`safereplay.schemes.base` says what a scheme is."""

from .base import NO_REPLAY as NO_REPLAY
from .base import Scheme as Scheme
from .base import alike as alike
from .base import if_seen as if_seen
from .base import no_tilt as no_tilt
from .bold import BoldReplay as BoldReplay
from .downside import DownsideReplay as DownsideReplay
from .entropic import EntropicReplay as EntropicReplay
from .errors import ErrorReplay as ErrorReplay
from .returns import ReturnReplay as ReturnReplay
from .score import ScoreReplay as ScoreReplay
from .uniform import DynaReplay as DynaReplay
from .uniform import UniformReplay as UniformReplay
from .variance import VarianceReplay as VarianceReplay
