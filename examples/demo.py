"""Fix U-NetD by every method, check it, save and reload it, draw the filters, explain them.

python examples/demo.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import explainfix as xf
from explainfix.report.sheets import plot_filters

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
folder.mkdir(exist_ok=True)
console = Console(highlight=False)

model = xf.create_model("unetd")
layers = xf.spatial_layers(model)
total = sum(parameter.numel() for parameter in model.parameters())
spatial = sum(layer.weight.numel() for layer in layers.values())
console.print(
    f"[bold]U-NetD[/bold] has {total:,} parameters; {spatial:,} of them ({spatial / total:.0%}) "
    f"are the spatial\nfilters of {len(layers)} layers. Six ways to set them once and never learn "
    "them:\n"
)

table = Table("method", box=None, pad_edge=False, header_style="bold")
for heading in ("mean", "norm", "learnable", "file, bytes", "reloaded"):
    table.add_column(heading, justify="right")
image = torch.randn(1, 3, 96, 96)
sheets = {}
for method in xf.list_filters():
    torch.manual_seed(0)
    model = xf.create_model("unetd").eval()
    xf.fix_(model, method, seed=0)
    file = folder / f"unetd-{method}.safetensors"
    xf.save(model, file, overwrite=True)

    loaded = xf.load(file).eval()
    xf.check_fixed(loaded)
    equal = torch.equal(loaded(image), model(image))

    kernels = torch.cat([layer.weight.flatten(0, 1) for layer in xf.spatial_layers(model).values()])
    sheets[method] = kernels[::97].numpy()
    table.add_row(
        method,
        f"{kernels.mean():+.3f}",
        f"{kernels.flatten(1).norm(dim=1).mean():.2f}",
        f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,}",
        f"{file.stat().st_size:,}",
        "equal" if equal else "[red]DIFFERENT[/red]",
    )
console.print(table)
console.print(
    "\nmean and norm are averages over the kernels. ghaar, psine, dct2 and ones are not\n"
    "in their files: the recipe (method, seed) regenerates them, bit for bit.\n"
)

model = xf.load(folder / "unetd-ghaar.safetensors")
why = xf.explain(model, title="U-NetD, fixed by GHaar")
for said in why.advice():
    console.print(f"[bold]{said.title}.[/bold] {said.text}\n")

plot_filters(sheets).savefig(folder / "filters.png")
why.to_html(folder / "report.html", overwrite=True)
console.print(f"Open {folder}/report.html in a browser; the filters are in {folder}/filters.png.")
