"""Schedules of all ranks together: timed, printed, drawn and exported."""
