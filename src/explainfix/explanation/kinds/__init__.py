"""What saliency can be: one kind a file."""

from . import batchnorm as batchnorm  # registers them
from . import gradient as gradient
from . import magnitude as magnitude
from . import random as random
from . import weight_gradient as weight_gradient
