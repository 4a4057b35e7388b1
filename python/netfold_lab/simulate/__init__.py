"""Collectives in virtual time: single runs, the papers' figures, and the comparison with another simulator."""
