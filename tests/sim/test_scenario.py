"""What is no part of a scenario is refused with what to give instead."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from steelyard.core import OptionError
from steelyard.sim import Edge, Exactly, Machine, Operator, Scenario, Simulation, Source, autoscale, mermaid, svg


def chain(grouping: str = "shuffle") -> Scenario:
    return Scenario.chain(Source("rows", 10.0), Operator("map", Exactly(0.01)), grouping=grouping)


def test_a_restart_wants_a_scenario():
    numbers: Any = {"map": 4}
    with pytest.raises(OptionError, match="rescaled"):
        Simulation(chain(), seed=1).restart(numbers)


def test_an_autoscaler_is_known_and_sees_what_it_needs():
    with pytest.raises(OptionError, match="did you mean 'ds2'"):
        autoscale(chain(), "ds3", 10.0)
    with pytest.raises(OptionError, match="zones needs to see how long a batch may take, which a simulation as flows"):
        autoscale(chain(), "zones", 10.0)


def test_a_scenario_is_drawn_as_a_dataflow_is():
    back = Edge("map", "map", "hash", share=0.25, feedback=True)
    scenario = Scenario(
        (Source("rows", 10.0, parallelism=2), Operator("map", Exactly(0.01)), Operator("end", Exactly(0.01))),
        (Edge("rows", "map", "dalton"), back, Edge("map", "end", "osg", share=0.75)),
    )
    text = mermaid(scenario)
    assert 'n0(["rows<br/>source x2"])' in text
    assert 'n0 -->|"dalton"| n1' in text
    assert 'n1 -.->|"hash, 0.25"| n1' in text
    assert 'n1 -->|"osg, 0.75"| n2' in text
    assert ET.fromstring(svg(scenario))[0].text == "scenario"


def test_places_are_dealt_in_turn_and_those_that_are_given_stay():
    scenario = Scenario(
        (Source("log", 1, parallelism=3), Operator("a", Exactly(1), machines=(1,)), Operator("b", Exactly(1))),
        (Edge("log", "a"), Edge("a", "b")),
        machines=[Machine()] * 2,
    )
    assert [scenario.placement.of(name) for name in ("log", "a", "b")] == [[0, 1, 0], [1], [1]]
    assert [scenario.rescaled({"a": 2}).placement.of(name) for name in ("log", "a", "b")] == [[0, 1, 0], [1, 0], [1]]
    with pytest.raises(OptionError, match="a#0 is placed on worker 2: there are 2"):
        replace(
            scenario, operators=[replace(one, machines=(2,) if one.name == "a" else ()) for one in scenario.operators]
        )


@pytest.mark.parametrize(
    ("grouping", "reached"),
    [("forward", [(0, 0), (1, 1), (2, 0)]), ("global", [(0, 0), (1, 0), (2, 0)]), ("hash", None), ("pk2", None)],
)
def test_channels_are_between_instances_that_may_send_to_each_other(grouping, reached):
    source = Source("log", 1, parallelism=3)
    scenario = Scenario.chain(source, Operator("map", Exactly(1), parallelism=2), grouping=grouping)
    pairs = [(one.sender.number, one.receiver.number) for one in scenario.channels()]
    assert pairs == (reached or [(sender, receiver) for sender in range(3) for receiver in range(2)])
