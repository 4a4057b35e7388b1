"""Models for the planner: layers with their parameters and operations."""
