"""The vendor's handling of an image, a prompt and an output, as small pure functions; no weights, no torch modules.

This module has the vendor's names of the model's inputs, and is light to import.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

ROWS = ("input_ids", "images_seq_mask")
"""Inputs with one value for each token of the prompt."""
GRID = "images_spatial_crop"
"""Columns and rows of crops of each image."""
PIXELS = ("images_crop", "images_ori")
"""The images' crops, and the whole pages."""
TENSORS = (*ROWS, GRID, *PIXELS)
"""The fields of :class:`~pytest_dsocr.contract.inputs.Inputs`."""
COMPARED = (*TENSORS, "dtypes")
"""Names under which the inputs of two sides are compared: tensors by content, and the dtypes of all but the pixels."""
StageWatch = Callable[[str], AbstractContextManager[None]]
"""Returns the context of one run of a stage."""
