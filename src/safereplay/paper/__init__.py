"""The paper: its experiments and claims as data, its figures, and the report."""
