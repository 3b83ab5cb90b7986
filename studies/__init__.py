"""Studies that use the package but are not part of it."""
