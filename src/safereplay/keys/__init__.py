"""Which transitions are of the same pair (s,a), where states are arrays: keys, and whether one fits."""
