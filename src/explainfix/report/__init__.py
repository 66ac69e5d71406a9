"""Pictures and the page. matplotlib and Jinja2 are imported when something is drawn."""

from . import heatmap as heatmap  # registers the views of an explanation
from . import notebook as notebook
from . import timeline as timeline
from . import write as write
