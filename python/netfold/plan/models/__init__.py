"""What is trained, as the planner sees it: layers with their parameters and operations."""
