"""Theory as code: the operator, its fixed points, and the risk of a policy."""
