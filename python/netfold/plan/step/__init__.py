"""A training step on a cluster: all-reduces simulated on its graph, computation beside them, what limits both."""
