"""Which algorithm for which tensor: a table of what was measured, a model of the times between, choices made of both.

table.py     what was measured, and its file
work.py      steps, bytes and folds of an algorithm, counted from its schedules
model.py     seconds a step, a byte and a fold, fitted to the table; times of what was not measured
accuracy.py  how far the model is off, told by points it was not given
choices.py   the algorithm for each size on so many ranks, and why
lookup.py    the table of this machine, or why there is none
"""
