"""Why a job is slow: which rank the others wait for, how often and how long, and whether it computes or its network is
slow. `switch.py` reads a running switch, `records.py` what the ranks wrote; both give a Finding, which verdict.py
words."""
