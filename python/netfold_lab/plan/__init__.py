"""The planner predicts the time of a training step on a cluster, its causes, and the gain of a change."""
