"""Registers the environments of this package with Gymnasium, without importing Gymnasium.

``gymnasium.make("safereplay/Cliff-v0")`` works once safereplay has been imported, before or after Gymnasium itself.
If Gymnasium is already imported, registration happens at once; otherwise when it is first imported.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

IDS = {"Volatile-v0": "volatile", "Cliff-v0": "cliff"}
POINT_STEPS = 100


def register() -> None:
    """Register the ids with Gymnasium."""
    from gymnasium.envs.registration import register as register_env
    from gymnasium.envs.registration import registry

    for name, grid in IDS.items():
        if f"safereplay/{name}" not in registry:
            register_env(
                id=f"safereplay/{name}",
                entry_point="safereplay.gym:make_grid_env",
                kwargs={"grid": grid},
                max_episode_steps=1_000,
            )
    if "safereplay/Point-v0" not in registry:
        register_env(id="safereplay/Point-v0", entry_point="safereplay.point:PointEnv", max_episode_steps=POINT_STEPS)


def register_with_gymnasium() -> None:
    """Register now if Gymnasium is imported, otherwise when it is."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium(MetaPathFinder):
    """Lets the first import of Gymnasium run as usual, then registers."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
