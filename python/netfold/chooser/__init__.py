"""Which algorithm for which tensor: a table of measured times, a model of the times between them, and the choices.

table.py     the measured points, and their file
work.py      steps, bytes and folds of an algorithm, counted in its schedules
model.py     seconds per step, byte and folded byte, fitted to the table; estimates for sizes between
accuracy.py  the model's error at points that it was not fitted to
choices.py   the algorithm for each size and number of ranks, and the reason
lookup.py    the table of this machine, or the reason why it is missing
"""
