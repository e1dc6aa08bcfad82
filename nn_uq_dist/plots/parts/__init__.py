"""What the figures share; read `_figure` first, then `_outputs` (single outputs) and `_drawn_law`.

To write a figure of your own, start from the names exported here: see the page on extending.

- `_figure`: a figure being drawn: backend, options of its visuals, panels, legend.
- `_outputs`: the laws and the draws of the shown outputs, prepared once.
- `_drawn_law`: what figures need from a joint law; `_drawn_copula`, `_drawn_linear`,
  `_drawn_joint`: the Gaussian copula, the exact linear law on a grid, and any other `JointLaw`.
- `_output_table`, `_score_grid`: normal scores and densities of one output at points with given
  scores, and of two outputs on a grid.
- `_regions`, `_contours`: regions of highest density, and how they are drawn; `_slices`, `_corner`:
  pieces of figures with slices of three outputs and of corner plots.
- `_panels`, `_frame`, `_ticks`, `_legend`, `_shapes`, `_palette`, `_heat_map`, `_positions`,
  `_output_curves`: pieces of panels.
- `_arguments`, `_joint_argument`, `_backends`: checks of arguments, and differences between
  backends.
- `_from_diagnostics`: everything that figures import from the diagnostics.
"""

from nn_uq_dist.plots.parts._figure import AREA as AREA
from nn_uq_dist.plots.parts._figure import HISTOGRAM as HISTOGRAM
from nn_uq_dist.plots.parts._figure import LINE as LINE
from nn_uq_dist.plots.parts._figure import Figure as Figure
from nn_uq_dist.plots.parts._frame import Frame as Frame
from nn_uq_dist.plots.parts._frame import frame_visuals as frame_visuals
from nn_uq_dist.plots.parts._outputs import Outputs as Outputs
from nn_uq_dist.plots.parts._outputs import prepare_outputs as prepare_outputs
from nn_uq_dist.plots.parts._palette import BLUE as BLUE
from nn_uq_dist.plots.parts._palette import GRAY as GRAY
from nn_uq_dist.plots.parts._palette import LIGHT_GRAY as LIGHT_GRAY
from nn_uq_dist.plots.parts._palette import SKY as SKY
from nn_uq_dist.plots.parts._palette import VERMILION as VERMILION
