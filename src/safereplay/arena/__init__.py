"""The arena: every system on the same worlds, with the same experience, judged exactly."""
