"""Tools that measure, emulate, plan, simulate and draw. They are optional, and each part needs packages of its own
(extras).

The product itself is the package `netfold`, which a training process or a switch runs. It imports nothing from here.
"""
