"""Colors and line styles of the figures."""

import numpy as np

# From the palette of M. Okabe and K. Ito, Color Universal Design (2008), which readers with any
# color vision can tell apart; the lines also differ in lightness, for print without color.
BLUE = "#0072B2"
SKY = "#56B4E9"
VERMILION = "#D55E00"
LIGHT_GRAY = "#B8B8B8"
GRAY = "#7A7A7A"  # for lines on bands
DARK_GRAY = "#606060"

# ArviZ's names of line styles, which every backend translates to its own.
DASHED, DOTTED = "C1", "C2"

# For bands of 1, 2, 3 standard deviations about the mean, which lie on top of each other.
BAND_ALPHAS = (0.45, 0.25, 0.13)

LIGHT, DARK = 0.25, 0.85


def tones(color: str, count: int) -> list[str]:
    """Return shades of a color from dark, for the smallest region, to light."""
    channels = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)])
    strengths = np.linspace(DARK, LIGHT, count) if count > 1 else [(LIGHT + DARK) / 2]
    shades = [np.rint(255 - s * (255 - channels)).astype(int) for s in strengths]
    return ["#" + "".join(f"{channel:02X}" for channel in shade) for shade in shades]
