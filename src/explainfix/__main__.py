"""`python -m explainfix`."""

import sys

from .cli import main

sys.exit(main())
