"""A matplotlib figure that a notebook shows; imported when something is drawn."""

from __future__ import annotations

import io

from ..extras import needed_for

with needed_for("a figure"):
    from matplotlib import figure


class Figure(figure.Figure):
    """A figure that pyplot does not know, so that it is shown once, where it is the result."""

    def _repr_png_(self) -> bytes:
        held = io.BytesIO()
        self.savefig(held, format="png")
        return held.getvalue()
