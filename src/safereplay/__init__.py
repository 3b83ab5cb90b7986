"""safereplay: shape the policy an agent learns by choosing what it replays.

>>> import safereplay as sr
>>> mdp = sr.grids.cliff()
>>> runs = sr.learn(mdp, sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5), episodes=5_000, seeds=2)
>>> runs.verdicts
['safe', 'safe']

Names load when they are first used, so ``import safereplay`` is fast.
"""

import re
from importlib import import_module
from pkgutil import get_data
from typing import Any

from . import catalog as _catalog
from ._plugin import register_with_gymnasium

__version__ = "0.2.0"

#: The module of each public name, from ``__init__.pyi`` and the catalog; a name equal to its module is the module itself.
#: No function may have the name of its module, since importing the module would hide it.
_HOMES: dict[str, str] = {
    name: home or name
    for home, name in re.findall(r"from \.(\S*) import (\w+)", (get_data(__name__, "__init__.pyi") or b"").decode())
}
_HOMES |= _catalog.classes()

register_with_gymnasium()

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'safereplay' has no attribute {name!r}")
    module = import_module(f".{_HOMES[name]}", __name__)
    value = module if _HOMES[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
