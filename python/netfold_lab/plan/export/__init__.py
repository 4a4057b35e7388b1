"""Plans for other simulators, to check Netfold's."""
