"""Drivers to kill."""

from __future__ import annotations

import pytest

from tests.crash.killing import driver_starter

new_driver = pytest.fixture(driver_starter, scope="module")
