"""Scenarios that are drawn at random often have groupings with nothing to choose; `test_effects.py` looks at that."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::steelyard.core.NoEffectWarning"))
