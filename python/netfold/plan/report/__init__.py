"""What the planner says, for people: a page to click through, pictures, and tables."""
