"""One small rule per operation, found by the operation's name."""

from . import attention as attention
from . import mixing as mixing
from . import norms as norms
from . import pictures as pictures
from . import pointwise as pointwise
from . import shapes as shapes
