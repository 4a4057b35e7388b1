"""Collectives in virtual time: one question, the papers' figures, and the peer that the simulator is compared with."""
