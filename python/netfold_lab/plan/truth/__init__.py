"""Compares the planner with measurements: of labs on this machine, and of this machine itself."""
