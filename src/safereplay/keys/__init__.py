"""Which transitions are of the same pair (s,a), where states are arrays: keys, and whether one fits."""

from .auto import AutoKey as AutoKey
from .base import PairKey as PairKey
from .diagnosis import Diagnosis as Diagnosis
from .diagnosis import diagnose as diagnose
from .exact import ExactKey as ExactKey
from .function import FunctionKey as FunctionKey
from .simhash import SimHashKey as SimHashKey
from .tiles import TileKey as TileKey
