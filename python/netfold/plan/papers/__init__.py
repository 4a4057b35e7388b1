"""Figures and tables of the four papers, computed: what each says beside what the planner says."""
