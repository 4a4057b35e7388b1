"""The places of the workers: the cables and routes of a fabric, and the file that names the hosts."""
