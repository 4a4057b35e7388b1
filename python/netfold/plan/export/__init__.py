"""Plans for other people's simulators, so that they can check ours."""
