"""What is no part of a scenario is refused with what to give instead."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.core import OptionError
from steelyard.sim import Exactly, Operator, Scenario, Simulation, Source, autoscale


def chain(grouping: str = "shuffle") -> Scenario:
    return Scenario.chain(Source("rows", 10.0), Operator("map", Exactly(0.01)), grouping=grouping)


def test_a_restart_wants_a_scenario():
    numbers: Any = {"map": 4}
    with pytest.raises(OptionError, match="with_instances"):
        Simulation(chain(), seed=1).restart(numbers)


def test_an_autoscaler_is_an_object():
    name: Any = "ds2"
    with pytest.raises(OptionError, match=r"DS2\(\)"):
        autoscale(chain(), name, 10.0)
