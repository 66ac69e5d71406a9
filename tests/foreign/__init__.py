"""Networks of other packages, zeroed, pruned and compared: see commands.py."""
