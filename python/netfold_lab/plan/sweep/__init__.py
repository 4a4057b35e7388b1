"""Thousands of designs: every combination of a file's values, planned in parallel and saved at once."""
