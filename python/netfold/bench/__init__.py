"""Measurements: one module a subcommand of `netfold bench`, each with `register(app)`; results as report.py says."""
