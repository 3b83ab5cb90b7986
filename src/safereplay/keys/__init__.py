"""Keys: which transitions belong to the same pair (s,a) if states are arrays, and whether a key fits the data."""
