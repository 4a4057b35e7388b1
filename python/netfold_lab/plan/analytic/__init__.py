"""Closed forms: the papers' own models of a training step and of an all-reduce, extended to every algorithm."""
