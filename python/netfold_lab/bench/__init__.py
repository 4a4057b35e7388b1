"""Measurements: each subcommand of `netfold bench` is a module with `register(app)`."""
