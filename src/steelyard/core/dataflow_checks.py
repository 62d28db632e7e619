"""What must hold of a dataflow before it runs; each check names the operator, edge or column, and the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from steelyard.core.dataflow import Dataflow, DataflowError, Edge, Operator, Route, topological
from steelyard.core.errors import OptionError


def checked_schemas(dataflow: Dataflow) -> Mapping[str, pa.Schema]:
    """The columns that each operator gives; DataflowError where the dataflow cannot run."""
    _names_are_unique(dataflow)
    _edges_lead_somewhere(dataflow)
    _everything_is_connected(dataflow)
    order = _order_without_feedback(dataflow)
    _feedback_closes_cycles(dataflow)
    _no_window_behind_a_cycle(dataflow)
    _forward_keeps_parallelism(dataflow)
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
        _columns_are_there(edge, schemas[edge.source])
    _feedback_fits(dataflow, schemas)
    return schemas


def _names_are_unique(dataflow: Dataflow) -> None:
    twice = [name for name, times in Counter(one.name for one in dataflow.operators).items() if times > 1]
    if twice:
        raise DataflowError(f"two operators are called {twice[0]!r}: give one of them another name=")
    if not dataflow.sources:
        raise DataflowError(f"dataflow {dataflow.name!r} has no source: begin it with flow.source(...)")


def _edges_lead_somewhere(dataflow: Dataflow) -> None:
    for edge in dataflow.edges:
        for end in (edge.source, edge.target):
            if end not in dataflow.by_name:
                raise DataflowError(f"edge {edge}: {OptionError.unknown('operator', end, dataflow.by_name)}")
        ports = dataflow.by_name[edge.target].logic.ports
        if not ports:
            raise DataflowError(f"edge {edge}: {edge.target!r} is a source, and nothing leads to a source")
        if not 0 <= edge.port < ports:
            raise DataflowError(f"edge {edge}: {edge.target!r} has no input {edge.port}, only {ports}, from 0")
        if not dataflow.by_name[edge.source].logic.emits:
            raise DataflowError(f"edge {edge}: {edge.source!r} is a sink, and nothing comes out of a sink")


def _everything_is_connected(dataflow: Dataflow) -> None:
    for operator in dataflow.operators:
        fed = {edge.port for edge in dataflow.into(operator.name) if not edge.feedback}
        for port in range(operator.logic.ports):
            if port not in fed:
                which = f"input {port} of operator" if operator.logic.ports > 1 else "operator"
                raise DataflowError(
                    f"{which} {operator.name!r} is unconnected: no edge leads to it that is not a feedback edge"
                )
        if operator.logic.emits and not dataflow.out_of(operator.name):
            raise DataflowError(f"operator {operator.name!r} is unconnected: nothing takes its rows; add a sink")


def _order_without_feedback(dataflow: Dataflow) -> list[str]:
    after = {
        one.name: [edge.target for edge in dataflow.out_of(one.name) if not edge.feedback] for one in dataflow.operators
    }
    order, stuck = topological(dataflow.by_name, after.__getitem__)
    if not stuck:
        return order
    path = [stuck[0]]  # walking back from an operator on or behind a cycle, one must come by a name twice
    while path.count(path[-1]) < 2:
        path.append(next(name for name in stuck if path[-1] in after[name]))
    cycle = path[path.index(path[-1]) :][::-1]
    raise DataflowError(
        f"there is a cycle without a feedback edge: {' -> '.join(cycle)}; close it with stream.feedback(...)"
    )


def _feedback_closes_cycles(dataflow: Dataflow) -> None:
    for edge in dataflow.edges:
        if edge.feedback and edge.source not in _reached(dataflow, edge.target):
            raise DataflowError(f"feedback edge {edge} closes no cycle: {edge.target!r} does not lead to its start")


def _no_window_behind_a_cycle(dataflow: Dataflow) -> None:
    """Rows that circulate have no part in the watermark: windows would close before they come."""
    for edge in dataflow.edges:
        for name in sorted(_reached(dataflow, edge.target)) if edge.feedback else ():
            if dataflow.by_name[name].logic.waits_for_time:
                raise DataflowError(
                    f"operator {name!r} has windows and stands in or behind the cycle that feedback edge {edge} "
                    "closes: event time passes the rows that still circulate; aggregate or join without a window there"
                )


def _reached(dataflow: Dataflow, start: str) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        for edge in dataflow.out_of(waiting.pop()):
            if edge.target not in found and not edge.feedback:
                found.add(edge.target)
                waiting.append(edge.target)
    return found


def _forward_keeps_parallelism(dataflow: Dataflow) -> None:
    for edge in dataflow.edges:
        sender, receiver = dataflow.by_name[edge.source], dataflow.by_name[edge.target]
        if edge.grouping.route is Route.FORWARD and sender.parallelism != receiver.parallelism:
            raise DataflowError(
                f"edge {edge} is forward, but {sender.name!r} has parallelism {sender.parallelism} and "
                f"{receiver.name!r} has {receiver.parallelism}: use shuffle() or key_by(...), or make them equal"
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
        first = schemas[edges[0].source]
        for edge in edges[1:]:
            _same_columns(edge, first, schemas[edge.source])
        found.append(first)
    return found


def _feedback_fits(dataflow: Dataflow, schemas: Mapping[str, pa.Schema]) -> None:
    for edge in dataflow.edges:
        if edge.feedback:
            inputs = _inputs(dataflow, dataflow.by_name[edge.target], schemas)
            _same_columns(edge, inputs[edge.port], schemas[edge.source])


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
