"""A training step on a cluster: simulated all-reduces on its graph, computation beside them, and the limits of both."""
