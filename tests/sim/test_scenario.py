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


def test_an_autoscaler_is_known_and_sees_what_it_needs():
    with pytest.raises(OptionError, match="did you mean 'ds2'"):
        autoscale(chain(), "ds3", 10.0)
    with pytest.raises(OptionError, match="zones needs to see how long a batch may take, which a simulation as flows"):
        autoscale(chain(), "zones", 10.0)
