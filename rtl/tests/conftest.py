"""Makes the helpers beside this file importable for the tests of every device."""
