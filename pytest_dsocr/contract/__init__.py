"""What the vendor does with an image, a prompt and an output, as small pure functions; no weights, no torch modules.

Here are the names of what goes into the model, as the vendor's code has them; light to import.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

ROWS = ("input_ids", "images_seq_mask")
"""One value for each token of the prompt."""
GRID = "images_spatial_crop"
"""Columns and rows of crops of each image."""
PIXELS = ("images_crop", "images_ori")
"""The images' crops, and the whole pages."""
TENSORS = (*ROWS, GRID, *PIXELS)
"""The fields of :class:`~pytest_dsocr.contract.inputs.Inputs`."""
COMPARED = (*TENSORS, "dtypes")
"""What two sides' inputs are compared by: the tensors' content, and the dtypes of all but the pixels."""
Watch = Callable[[str], AbstractContextManager[None]]
"""Returns the context of one run of a stage."""
