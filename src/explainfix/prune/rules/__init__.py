"""One small rule per operation, found by the operation's name."""

from . import detection as detection
from . import indexing as indexing
from . import memory as memory
from . import mixing as mixing
from . import norms as norms
from . import pictures as pictures
from . import pointwise as pointwise
from . import products as products
from . import reductions as reductions
from . import shapes as shapes
from . import spectra as spectra
