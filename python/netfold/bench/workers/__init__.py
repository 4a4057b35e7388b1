"""The programs that run as ranks. `rank` is what the Python ones share; mpi_rank.c speaks the same words."""
