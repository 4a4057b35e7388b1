"""Thousands of designs: every combination of what a file varies, in parallel, kept as they come."""
