"""Random weights in the published sizes of vision, for ports that know no others: the engine and the vendor's code."""

import pytest

from tests.held import held


@pytest.mark.dsocr_slow
def test_the_engine_is_the_vendors_model_in_the_published_sizes() -> None:
    assert held("engine", "figures_201", 4, of="synthetic:published", preset="tiny").passes
