"""``solve``, ``check`` and ``tune``: what a replay will do, whether it is allowed to, and how much of it is needed."""
