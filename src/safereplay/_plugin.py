"""Registers the environments of this package with Gymnasium, without importing Gymnasium.

``gymnasium.make("safereplay/Cliff-v0")`` works once safereplay has been imported, before or after Gymnasium itself.
If Gymnasium is already imported, registration happens at once; otherwise when it is first imported.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

#: The environments: where each is defined, its arguments, and its longest episode.
ENVIRONMENTS: dict[str, tuple[str, dict[str, str], int]] = {
    "safereplay/Volatile-v0": ("safereplay.gym:make_grid_env", {"grid": "volatile"}, 1_000),
    "safereplay/Cliff-v0": ("safereplay.gym:make_grid_env", {"grid": "cliff"}, 1_000),
    "safereplay/Point-v0": ("safereplay.point:PointEnv", {}, 100),
}


def register() -> None:
    """Register the environments with Gymnasium."""
    from gymnasium.envs import registration

    for name, (home, options, steps) in ENVIRONMENTS.items():
        if name not in registration.registry:
            registration.register(name, home, max_episode_steps=steps, kwargs=options)


def register_with_gymnasium() -> None:
    """Register now if Gymnasium is imported, otherwise when it is."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium(MetaPathFinder):
    """Lets the first import of Gymnasium run as usual, then registers."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
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
