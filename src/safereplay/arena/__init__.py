"""The arena: all systems on the same worlds, with the same experience, judged exactly."""
