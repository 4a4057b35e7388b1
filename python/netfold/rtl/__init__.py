"""The hardware of rtl/ seen from here: building simulations, measuring, proving, and reporting its size."""
