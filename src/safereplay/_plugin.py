"""Registers our environments with Gymnasium, which calls this when it is imported."""

IDS = {"Volatile-v0": "volatile", "Cliff-v0": "cliff"}


def register() -> None:
    """Make ``gymnasium.make("safereplay/Volatile-v0")`` and ``"safereplay/Cliff-v0"`` work."""
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
