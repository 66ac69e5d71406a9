"""Prune the networks of other packages: python tests/foreign.py --help."""

from foreign.commands import main

if __name__ == "__main__":
    main()
