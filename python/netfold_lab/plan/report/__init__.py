"""The planner's reports: an interactive page, pictures, and tables."""
