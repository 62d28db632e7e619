"""What a streaming DataFrame reads, out of its plan: the source's format and options, and what is done with its rows.

An engine that reads a source by itself, rather than through Spark, needs to know it. Spark's analysed plan has it:
a relation, with projections above. Projections that choose or rename columns, or read JSON documents, can be done
without Spark; everything else is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from steelyard.core import OptionError

_REMEDY = "do it in .map(function, schema), or use engine('microbatch')"


@dataclass(frozen=True)
class Picked:
    """A column of the result: a column of the source, or a field of the JSON documents in one.

    Parameters
    ----------
    name
        Under which it comes out.
    column
        Of the source.
    json
        The schema of the documents; None where the column itself is meant.
    field
        Of the documents.
    """

    name: str
    column: str
    json: T.StructType | None = None
    field: str | None = None


@dataclass(frozen=True)
class Relation:
    """A source, and the columns that are picked of it.

    Parameters
    ----------
    format
        As in `spark.readStream.format`.
    options
        As given there, their names in lower case.
    columns
        The source's own.
    picked
        What comes out.
    """

    format: str
    options: Mapping[str, str]
    columns: T.StructType
    picked: tuple[Picked, ...]


def relation_of(rows: DataFrame) -> Relation:
    """The source of a streaming DataFrame; OptionError that names what only Spark can do."""
    frame: Any = rows
    node = frame._jdf.queryExecution().analyzed()
    above = []
    while _kind(node) in ("Project", "SubqueryAlias"):
        above.append(node)
        node = node.child()
    if _kind(node) not in ("StreamingRelation", "StreamingRelationV2"):
        raise OptionError(
            f"engine('resident') reads the source by itself, and cannot do this part of the DataFrame: {_shown(node)}. "
            f"Instead, {_REMEDY}"
        )
    source, options = _source(node)
    columns = T.StructType.fromJson(json.loads(node.schema().json()))
    known: dict[int, Picked] = {
        attribute.exprId().id(): Picked(attribute.name(), attribute.name()) for attribute in _items(node.output())
    }
    for project in reversed(above):
        if _kind(project) == "Project":
            for made in _items(project.projectList()):
                known[made.exprId().id()] = _picked(made, known)
    top = above[0] if above else node
    picked = tuple(known[attribute.exprId().id()] for attribute in _items(top.output()))
    for one in picked:
        if one.json is not None and one.field is None:
            raise OptionError(f"column {one.name!r} is a whole JSON document: choose its fields, as in select('v.*')")
    return Relation(source, options, columns, picked)


def _source(node: Any) -> tuple[str, dict[str, str]]:
    if _kind(node) == "StreamingRelationV2":
        options = node.extraOptions()
        return str(node.sourceName()).lower(), {str(key).lower(): str(value) for key, value in options.items()}
    data = node.dataSource()
    options = data.options()
    found = {str(pair._1()).lower(): str(pair._2()) for pair in _items(options.toSeq())}
    return str(data.className()).lower(), found


def _picked(made: Any, known: Mapping[int, Picked]) -> Picked:
    """What a projection's expression picks."""
    value, name = (made.child(), made.name()) if _kind(made) == "Alias" else (made, made.name())
    if _kind(value) == "AttributeReference":
        before = known[value.exprId().id()]
        return Picked(name, before.column, before.json, before.field)
    if _kind(value) == "GetStructField" and _kind(value.child()) == "AttributeReference":
        before = known[value.child().exprId().id()]
        if before.json is not None and before.field is None:
            return Picked(name, before.column, before.json, before.json.names[value.ordinal()])
    if _kind(value) == "JsonToStructs":
        text = value.child().child() if _kind(value.child()) == "Cast" else value.child()
        if _kind(text) == "AttributeReference" and value.options().size() == 0:
            schema = T.StructType.fromJson(json.loads(value.schema().json()))
            return Picked(name, known[text.exprId().id()].column, schema)
    raise OptionError(
        f"engine('resident') reads the source by itself, and cannot compute column {name!r}: {_shown(value)}. "
        f"Instead, {_REMEDY}"
    )


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))


def _shown(node: Any) -> str:
    """A node or an expression as Spark writes it, shortened."""
    text = str(node.toString()).strip().splitlines()[0]
    return text if len(text) <= 120 else text[:117] + "..."
