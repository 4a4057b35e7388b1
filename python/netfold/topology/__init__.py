"""Where the workers sit: the shape of a BiGraph, the cables and routes of a fabric, and the file that names the hosts."""
