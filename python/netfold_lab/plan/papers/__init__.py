"""Figures and tables of the four papers: published values beside the planner's."""
