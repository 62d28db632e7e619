"""What must hold of a dataflow before it runs; each check names the operator, edge or column, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from steelyard.core.dataflow import Dataflow, Edge, Operator, Route
from steelyard.core.errors import OptionError
from steelyard.core.topology import DataflowError, topological


def checked_schemas(dataflow: Dataflow) -> Mapping[str, pa.Schema]:
    """The columns that each operator gives; DataflowError where the dataflow cannot run."""
    dataflow.check_graph()
    _rows_end_in_sinks(dataflow)
    order = _order_without_feedback(dataflow)
    _no_window_behind_a_cycle(dataflow)
    _forward_keeps_parallelism(dataflow)
    _groups_suffice(dataflow)
    _keys_meet(dataflow)
    schemas: dict[str, pa.Schema] = {}
    for name in order:
        operator = dataflow.by_name[name]
        inputs = _inputs(dataflow, operator, schemas)
        try:
            schemas[name] = operator.logic.output(inputs)
        except OptionError as error:
            raise DataflowError(f"operator {name!r}: {error}") from error
    for edge in dataflow.edges:
        _columns_are_there(edge, schemas[edge.sender])
    _feedback_fits(dataflow, schemas)
    return schemas


def _rows_end_in_sinks(dataflow: Dataflow) -> None:
    for edge in dataflow.edges:
        if not dataflow.by_name[edge.sender].logic.emits:
            raise DataflowError(f"edge {edge}: {edge.sender!r} is a sink, and nothing comes out of a sink")
    for operator in dataflow.operators:
        if operator.logic.emits and not dataflow.out_of(operator.name):
            raise DataflowError(f"operator {operator.name!r} is unconnected: nothing takes its rows; add a sink")


def _order_without_feedback(dataflow: Dataflow) -> list[str]:
    order, stuck = topological(dataflow.by_name, dataflow.after)
    if not stuck:
        return order
    path = [stuck[0]]  # walking back from an operator on or behind a cycle, one must come by a name twice
    while path.count(path[-1]) < 2:
        path.append(next(name for name in stuck if path[-1] in dataflow.after(name)))
    cycle = path[path.index(path[-1]) :][::-1]
    raise DataflowError(
        f"there is a cycle without a feedback edge: {' -> '.join(cycle)}; close it with stream.feedback(...)"
    )


def _no_window_behind_a_cycle(dataflow: Dataflow) -> None:
    """Rows that circulate have no part in the watermark: windows would close before they come."""
    for edge in dataflow.edges:
        for name in sorted(dataflow.reached(edge.receiver)) if edge.feedback else ():
            if dataflow.by_name[name].logic.waits_for_time:
                raise DataflowError(
                    f"operator {name!r} has windows and stands in or behind the cycle that feedback edge {edge} "
                    "closes: event time passes the rows that still circulate; aggregate or join without a window there"
                )


def _forward_keeps_parallelism(dataflow: Dataflow) -> None:
    for edge in dataflow.edges:
        sender, receiver = dataflow.by_name[edge.sender], dataflow.by_name[edge.receiver]
        if edge.grouping.route is Route.FORWARD and sender.parallelism != receiver.parallelism:
            raise DataflowError(
                f"edge {edge} is forward, but {sender.name!r} has parallelism {sender.parallelism} and "
                f"{receiver.name!r} has {receiver.parallelism}: use shuffle() or key_by(...), or make them equal"
            )


def _groups_suffice(dataflow: Dataflow) -> None:
    groups: object = dataflow.groups
    if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
        raise DataflowError(f"groups must be a whole number, 1 or more, got {groups!r}")
    for edge in dataflow.edges:
        parallelism = dataflow.by_name[edge.receiver].parallelism
        if edge.grouping.route is Route.HASH and parallelism > groups:
            raise DataflowError(
                f"operator {edge.receiver!r} has parallelism {parallelism}, and keys are of {groups} groups, which "
                f"have one owner each: give Flow(groups={parallelism}) or more, or a smaller parallelism"
            )


def _keys_meet(dataflow: Dataflow) -> None:
    for operator in dataflow.operators:
        broadcast = {
            edge.port for edge in dataflow.into(operator.name) if edge.grouping.route is Route.BROADCAST
        }  # rows of other inputs meet those everywhere
        if len(broadcast) > 1 and operator.parallelism > 1 and operator.logic.keys(0) is not None:
            raise DataflowError(f"operator {operator.name!r}: all inputs are broadcast, and pairs would meet often")
        for edge in dataflow.into(operator.name):
            keys = operator.logic.keys(edge.port)
            meets = edge.grouping.joins_keys and edge.grouping.columns == keys
            if keys is None or meets or operator.parallelism == 1 or (broadcast and operator.logic.ports > 1):
                continue
            raise DataflowError(
                f"edge {edge} is grouped by {edge.grouping}, but {operator.name!r} needs the rows of a key "
                f"({', '.join(keys) or 'all rows are one key'}) in one instance: use key_by, or parallelism=1"
            )


def _inputs(dataflow: Dataflow, operator: Operator, schemas: Mapping[str, pa.Schema]) -> list[pa.Schema]:
    found: list[pa.Schema] = []
    for port in range(operator.logic.ports):
        edges = [edge for edge in dataflow.into(operator.name) if edge.port == port and not edge.feedback]
        first = schemas[edges[0].sender]
        for edge in edges[1:]:
            _same_columns(edge, first, schemas[edge.sender])
        found.append(first)
    return found


def _feedback_fits(dataflow: Dataflow, schemas: Mapping[str, pa.Schema]) -> None:
    for edge in dataflow.edges:
        if edge.feedback:
            inputs = _inputs(dataflow, dataflow.by_name[edge.receiver], schemas)
            _same_columns(edge, inputs[edge.port], schemas[edge.sender])


def _same_columns(edge: Edge, wanted: pa.Schema, given: pa.Schema) -> None:
    if not wanted.equals(given):
        raise DataflowError(
            f"edge {edge}: columns ({_spoken(given)}) meet others at one input ({_spoken(wanted)}): make them equal"
        )


def _spoken(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _columns_are_there(edge: Edge, schema: pa.Schema) -> None:
    for column in edge.grouping.columns:
        if column not in schema.names:
            raise DataflowError(f"edge {edge}: {OptionError.unknown('column', column, schema.names)}")
