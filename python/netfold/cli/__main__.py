"""`python -m netfold.cli` is the program `netfold`."""

from netfold.cli import main

main()
