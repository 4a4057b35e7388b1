"""The planner against what is measured: labs on this machine, and this machine itself."""
