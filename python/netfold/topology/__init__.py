"""Where the workers sit: the cables and routes of a fabric, and the file that names the hosts."""
