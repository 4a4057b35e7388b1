"""Schedules seen whole: all ranks together, timed, printed, drawn and exported."""
