"""What the figures share; read `_figure`, then `_shown_outputs` (single outputs) and `_drawn_law`.

To write a figure of your own, start from the names exported here: see the page on extending.

- `_figure`: a figure being drawn: backend, options of its visuals, panels, axes, legend.
- `_palette`: colors, and the legend that shows them; `_shapes`: what panels hold.
- `_shown_outputs`: which outputs are shown, with their laws and draws, prepared once.
- `_drawn_law`: which joint law a figure draws, on a grid that resolves it.
- `_regions`: regions of highest density, and how they are drawn.
"""

from nn_uq_dist.plots.parts._figure import Figure as Figure
from nn_uq_dist.plots.parts._figure import Frame as Frame
from nn_uq_dist.plots.parts._figure import frame_visuals as frame_visuals
from nn_uq_dist.plots.parts._palette import BLUE as BLUE
from nn_uq_dist.plots.parts._palette import GRAY as GRAY
from nn_uq_dist.plots.parts._palette import LIGHT_GRAY as LIGHT_GRAY
from nn_uq_dist.plots.parts._palette import SKY as SKY
from nn_uq_dist.plots.parts._palette import VERMILION as VERMILION
from nn_uq_dist.plots.parts._shown_outputs import Outputs as Outputs
from nn_uq_dist.plots.parts._shown_outputs import prepare_outputs as prepare_outputs
