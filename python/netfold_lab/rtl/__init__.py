"""Tools for the hardware of rtl/: they build simulations, measure, prove, and report its size."""
