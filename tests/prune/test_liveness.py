import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from explainfix.prune.liveness import connected


def same_classes(count, one, other):
    """Ours and SciPy's are the same partition, and ours is numbered without gaps."""
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=(count, count))
    number, theirs = connected_components(links, directed=False)
    ours = connected(count, one, other)
    pairs = set(zip(ours.tolist(), theirs.tolist(), strict=True))
    return len(pairs) == number == len(np.unique(ours)) == ours.max() + 1


@given(st.integers(1, 60), st.integers(0, 120), st.integers(0, 2**32))
def test_classes_are_those_of_scipy(count, ties, seed):
    one, other = np.random.default_rng(seed).integers(0, count, (2, ties))
    assert same_classes(count, one, other)


def test_a_long_chain_in_any_order():
    chain = np.random.default_rng(0).permutation(20_000)
    assert same_classes(20_000, chain[:-1], chain[1:])
