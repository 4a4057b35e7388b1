"""The programs that run as ranks. The Python programs share `rank`; mpi_rank.c has the same commands."""
