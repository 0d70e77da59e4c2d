"""Valid image tokens that the vendor's code told of three shipped pages, in the order of ``PRESETS``."""

from __future__ import annotations

FACTS = {
    "invoice_016": (64, 100, 247, 386, 647),
    "receipt_086": (64, 100, 130, 203, 330),
    "figures_201": (64, 100, 227, 355, 227),
}
