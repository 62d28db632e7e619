"""What a streaming DataFrame reads, out of its plan: the source's format and options, and what is done with its rows.

An engine that reads a source by itself, rather than through Spark, needs to know it. Spark's analysed plan has it:
a relation, with projections and filters above. Those that choose or rename columns, read JSON documents, or compute
what is certainly the same here (`spark/expressions.py`) can be done without Spark; all else is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.resident.expressions import Computed, Expression, Given
from steelyard.spark.arrow import arrow_schema, require_arrow
from steelyard.spark.expressions import UntranslatableError, items, shown, translated

_REMEDY = "do it in .map(function, schema), or use engine('microbatch')"


@dataclass(frozen=True)
class Picked:
    """What expressions begin with: a column of the source, or a field of the JSON documents in one.

    Parameters
    ----------
    column
        Of the source.
    json
        The schema of the documents; None where the column itself is meant.
    field
        Of the documents.
    """

    column: str
    json: T.StructType | None = None
    field: str = ""


@dataclass(frozen=True)
class Relation:
    """A source, and what is done with its rows.

    Parameters
    ----------
    format
        As in `spark.readStream.format`.
    options
        As given there, their names in lower case.
    columns
        Those of the source that are read.
    picked
        By the name under which `computed` finds it: what is picked of them.
    computed
        The rows and columns that come out.
    """

    format: str
    options: Mapping[str, str]
    columns: T.StructType
    picked: Mapping[str, Picked]
    computed: Computed


def relation_of(rows: DataFrame, wanted: Collection[str]) -> Relation:
    """The source of a streaming DataFrame, for some of its columns; OptionError that names what only Spark can do."""
    frame: Any = rows
    node = frame._jdf.queryExecution().analyzed()
    above = []
    while _kind(node) in ("Project", "Filter", "SubqueryAlias"):
        above.append(node)
        node = node.child()
    if _kind(node) not in ("StreamingRelation", "StreamingRelationV2"):
        raise OptionError(
            f"engine('resident') reads the source by itself, and cannot do this part of the DataFrame: {shown(node)}. "
            f"Instead, {_REMEDY}"
        )
    source, options = _source(node)
    plan = _Plan(node, above)
    conditions = [one.condition() for one in reversed(above) if _kind(one) == "Filter"]
    kept = tuple((plan.done(one, f"filter by {shown(one)}"), str(one.sql())) for one in conditions)
    top = above[0] if above else node
    given = {str(one.name()): one for one in items(top.output()) if one.name() in wanted}
    made = tuple(plan.done(one, f"compute column {name!r}") for name, one in given.items())
    return Relation(source, options, plan.read(), plan.picked, Computed(kept, tuple(given), made))


class _Plan:
    """What attributes of a plan are made of: translated when they are asked for, since others do not matter."""

    def __init__(self, relation: Any, above: list[Any]) -> None:
        self._columns = T.StructType.fromJson(json.loads(relation.schema().json()))
        self._given = {one.exprId().id(): str(one.name()) for one in items(relation.output())}
        self._defined = {
            made.exprId().id(): made.child()
            for project in above
            if _kind(project) == "Project"
            for made in items(project.projectList())
            if _kind(made) == "Alias"
        }
        self._made: dict[int, Expression] = {}
        self.picked: dict[str, Picked] = {}

    def read(self) -> T.StructType:
        """The columns of the source that are needed: at least one, since rows are counted by it."""
        if not self.picked:
            self._pick(Picked(self._columns.names[0]))
        used = {one.column for one in self.picked.values()}
        return T.StructType([one for one in self._columns if one.name in used])

    def done(self, node: Any, what: str) -> Expression:
        """An expression, translated; OptionError with `what` cannot be done."""
        try:
            return translated(node, self._leaf)
        except UntranslatableError as error:
            raise OptionError(
                f"engine('resident') reads the source by itself, and cannot {what}: {error}. Instead, {_REMEDY}"
            ) from error

    def _leaf(self, node: Any) -> Expression:
        """An attribute, or a field of a document."""
        found = self._document(node.child()) if _kind(node) == "GetStructField" else None
        if found is not None:
            column, schema = found
            return self._pick(Picked(column, schema, schema.names[node.ordinal()]))
        number = node.exprId().id() if _kind(node) == "AttributeReference" else -1
        if number in self._given:
            return self._pick(Picked(self._given[number]))
        if number not in self._defined:  # others of Spark's own too, such as _metadata
            raise UntranslatableError(shown(node))
        if self._document(node) is not None:
            raise UntranslatableError(f"{node.name()} is a whole JSON document: choose its fields, as in select('v.*')")
        if number not in self._made:
            self._made[number] = translated(self._defined[number], self._leaf)
        return self._made[number]

    def _resolved(self, node: Any) -> Any:
        """What an attribute is another name of."""
        while _kind(node) == "AttributeReference" and node.exprId().id() in self._defined:
            node = self._defined[node.exprId().id()]
        return node

    def _document(self, node: Any) -> tuple[str, T.StructType] | None:
        """(column, schema) of JSON documents in a column of the source, where it is these."""
        node = self._resolved(node)
        if _kind(node) != "JsonToStructs" or node.options().size():
            return None
        text = self._resolved(node.child())
        text = self._resolved(text.child()) if _kind(text) == "Cast" else text
        number = text.exprId().id() if _kind(text) == "AttributeReference" else None
        if number not in self._given:
            return None
        return self._given[number], T.StructType.fromJson(json.loads(node.schema().json()))

    def _pick(self, wanted: Picked) -> Expression:
        for name, one in self.picked.items():
            if one == wanted:
                return Given(name, self._kind_of(wanted))
        name = str(len(self.picked))
        kind = self._kind_of(wanted)
        self.picked[name] = wanted
        return Given(name, kind)

    def _kind_of(self, wanted: Picked) -> pa.DataType:
        schema, name = (self._columns, wanted.column) if wanted.json is None else (wanted.json, wanted.field)
        one = T.StructType([schema[name]])
        require_arrow(one, "engine('resident')")
        return arrow_schema(one).field(name).type


def _source(node: Any) -> tuple[str, dict[str, str]]:
    if _kind(node) == "StreamingRelationV2":
        options = node.extraOptions()
        return str(node.sourceName()).lower(), {str(key).lower(): str(value) for key, value in options.items()}
    data = node.dataSource()
    options = data.options()
    found = {str(pair._1()).lower(): str(pair._2()) for pair in items(options.toSeq())}
    return str(data.className()).lower(), found


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
