"""The ways to set spatial filters, one a file; importing this package registers them.

A method is a function of the weight's shape `(out, in, *kernel)`, a stream of random numbers and
its own keyword options, and returns float64 kernels of that shape. One that starts from a model
asks for it by name: `own` is the layer's present kernels, `guide` what guides the layer.
"""

from . import covariance, dct2, ghaar, guidedsteer, masterkeys, ones, psine, unchanged

__all__ = ["covariance", "dct2", "ghaar", "guidedsteer", "masterkeys", "ones", "psine", "unchanged"]
