"""Collectives of servers with several GPUs in closed form: NCCL's algorithms, rails, and a measured curve."""
