"""The planner: how long a training step takes on a cluster, why, and what a change would bring, before anyone buys."""
