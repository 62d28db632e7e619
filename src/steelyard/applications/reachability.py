"""What can be reached from where, in a graph whose links and sources come and go: a dataflow with a cycle.

The cyclic query of Siachamis 2024 (section 3): a source knows the nodes on its path; `join` puts it together with the
links that begin where it is; `select` drops what would lead back to a node of the path; `project` makes the new source,
which goes to the sink and back to `join`. A deletion goes to every instance of `join`, which forgets the link or source
and everything that was made with it.

Results do not depend on the order in which rows come, nor on parallelism: a path has the ids of what it was made of,
and `join` remembers the ids that were deleted, so that a path that was still on its way is taken back when it arrives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.resident import InstanceContext, Step, Stream

SOURCES = pa.schema(
    {
        "added": pa.bool_(),
        "source": pa.int64(),
        "reachable": pa.int64(),
        "nodes": pa.list_(pa.int64()),
        "ids": pa.list_(pa.int64()),
    }
)
"""A source: from where, to where, over which nodes, made of what. Where it is not `added`, it is taken back."""
PAIRS = pa.schema([*SOURCES, pa.field("link", pa.int64()), pa.field("end", pa.int64())])

Path = tuple[int, ...]
Pair = tuple[bool, int, int, Path, Path, int | None, int | None]


def reachability(changes: Stream, parallelism: int | None = None) -> Stream:
    """What becomes reachable, and what is no longer: rows of `SOURCES`.

    Parameters
    ----------
    changes
        Rows of the workload `links`, in any order.
    parallelism
        Of the operators in the cycle.
    """

    def of(change: str, name: str) -> Stream:
        return changes.filter(pc.field("change") == change, name=name)

    links = of("new link", "links").select("id", "start", "end", name="link fields")
    sources = of("new source", "sources").map(_source, SOURCES, name="paths of no link")
    deletions = changes.filter(pc.starts_with(pc.field("change"), "delete"), name="deletions").select("id", name="ids")
    joined = links.key_by("start").process(
        _started, PAIRS, sources.key_by("reachable"), deletions.broadcast(), name="join", parallelism=parallelism
    )
    projected = joined.filter(_leads_on, name="select").map(_project, SOURCES, name="project")
    projected.filter(pc.field("added"), name="back").key_by("reachable").feedback(joined, port=1)
    return projected


def reached(results: pa.Table) -> set[tuple[int, int]]:
    """(source, reachable node) for all that is left when what was taken back is left out.

    >>> one = {"source": 1, "reachable": 2, "nodes": [1, 2], "ids": [0, 7]}
    >>> reached(pa.Table.from_pylist([{"added": True, **one}], schema=SOURCES))
    {(1, 2)}
    >>> reached(pa.Table.from_pylist([{"added": True, **one}, {"added": False, **one}], schema=SOURCES))
    set()
    """
    return {(nodes[0], nodes[-1]) for nodes in paths(results).values()}


def paths(results: pa.Table) -> dict[Path, Path]:
    """The nodes of each path that is left, by what the path is made of."""
    left: Counter[Path] = Counter()
    nodes: dict[Path, Path] = {}
    for row in results.select(["added", "nodes", "ids"]).to_pylist():
        made_of = tuple(row["ids"])
        left[made_of] += 1 if row["added"] else -1
        nodes[made_of] = tuple(row["nodes"])
    return {made_of: nodes[made_of] for made_of, times in left.items() if times > 0}


def _source(batch: pa.RecordBatch) -> pa.RecordBatch:
    """New sources as paths of no link."""
    node, offsets = batch.column("start"), pa.array(np.arange(batch.num_rows + 1, dtype=np.int32))
    lists = [pa.ListArray.from_arrays(offsets, column) for column in (node, batch.column("id"))]
    return pa.RecordBatch.from_arrays([pa.array(np.ones(batch.num_rows, np.bool_)), node, node, *lists], schema=SOURCES)


def _leads_on(pairs: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the link of a pair leads to a node that is not on the path; also what is taken back goes on."""
    nodes, end = pairs.column("nodes"), pairs.column("end")
    sizes = pc.list_value_length(nodes).to_numpy()
    known = nodes.flatten().to_numpy() == np.repeat(end.fill_null(-1).to_numpy(), sizes)
    return ~np.logical_or.reduceat(known, np.cumsum(sizes) - sizes)


def _project(pairs: pa.RecordBatch) -> pa.RecordBatch:
    """The path with the link of its pair behind it; what is taken back as it was."""
    end = pairs.column("end")
    reachable = pc.coalesce(end, pairs.column("reachable"))
    lists = [_longer(pairs.column(path), pairs.column(more)) for path, more in (("nodes", "end"), ("ids", "link"))]
    return pa.RecordBatch.from_arrays(
        [pairs.column("added"), pairs.column("source"), reachable, *lists], schema=SOURCES
    )


def _longer(lists: pa.Array, more: pa.Array) -> pa.Array:
    """Each list with one value more, where there is one."""
    sizes, given = pc.list_value_length(lists).to_numpy(), more.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes + given)]).astype(np.int32)
    values = np.empty(offsets[-1], np.int64)
    is_last = np.zeros(len(values), np.bool_)
    is_last[offsets[1:][given] - 1] = True
    values[~is_last], values[is_last] = lists.flatten().to_numpy(), more.drop_null().to_numpy()
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _started(context: InstanceContext) -> Step:
    return _Join()


class _Join(Step):
    """Links by where they begin and paths by where they are; gives pairs, and what is taken back."""

    def __init__(self) -> None:
        self._links: dict[int, dict[int, int]] = defaultdict(dict)
        """By start: id and end."""
        self._begins: dict[int, int] = {}
        """The start of each link, by id."""
        self._paths: dict[int, dict[Path, Path]] = defaultdict(dict)
        """By the node that was reached: ids and nodes."""
        self._uses: dict[int, set[tuple[int, Path]]] = defaultdict(set)
        """Which paths are made with an id."""
        self._deleted: set[int] = set()

    def process(self, port: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found: list[Pair] = []
        if port == 0:
            for number, start, end in zip(
                *(batch.column(name).to_pylist() for name in ("id", "start", "end")), strict=True
            ):
                found += self._link(number, start, end)
        elif port == 1:
            for nodes, ids in zip(*(batch.column(name).to_pylist() for name in ("nodes", "ids")), strict=True):
                found += self._path(tuple(nodes), tuple(ids))
        else:
            for number in batch.column("id").to_pylist():
                found += self._delete(number)
        if found:
            columns = zip(*found, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, PAIRS, strict=True)], schema=PAIRS
            )

    def _link(self, number: int, start: int, end: int) -> Iterator[Pair]:
        if number not in self._deleted:
            self._links[start][number] = end
            self._begins[number] = start
            for ids, nodes in self._paths[start].items():
                yield True, nodes[0], start, nodes, ids, number, end

    def _path(self, nodes: Path, ids: Path) -> Iterator[Pair]:
        at = nodes[-1]
        if not self._deleted.isdisjoint(ids):
            yield from self._taken_back(nodes, ids)
            return
        self._keep(nodes, ids)
        for number, end in self._links[at].items():
            yield True, nodes[0], at, nodes, ids, number, end

    def _keep(self, nodes: Path, ids: Path) -> None:
        self._paths[nodes[-1]][ids] = nodes
        for number in ids:
            self._uses[number].add((nodes[-1], ids))

    def _delete(self, number: int) -> Iterator[Pair]:
        if number in self._deleted:
            return
        self._deleted.add(number)
        if number in self._begins:
            del self._links[self._begins.pop(number)][number]
        for at, ids in self._uses.pop(number, ()):
            nodes = self._paths[at].pop(ids)
            for other in ids:
                if other != number:
                    self._uses[other].discard((at, ids))
            yield from self._taken_back(nodes, ids)

    @staticmethod
    def _taken_back(nodes: Path, ids: Path) -> Iterator[Pair]:
        if len(ids) > 1:  # a path of no link was never given
            yield False, nodes[0], nodes[-1], nodes, ids, None, None

    def snapshot(self, number: int) -> dict[str, pa.Table]:
        """Links, paths and what was deleted."""
        links = [(number, start, end) for start, some in self._links.items() for number, end in some.items()]
        known = [(nodes, ids) for some in self._paths.values() for ids, nodes in some.items()]
        return {
            "links": _table(links, ("id", "start", "end"), pa.int64()),
            "paths": _table(known, ("nodes", "ids"), pa.list_(pa.int64())),
            "deleted": _table([(number,) for number in self._deleted], ("id",), pa.int64()),
        }

    def restore(self, state: dict[str, pa.Table]) -> None:
        """Go on with these."""
        if not state:
            return
        for row in state["links"].to_pylist():
            self._links[row["start"]][row["id"]] = row["end"]
            self._begins[row["id"]] = row["start"]
        for row in state["paths"].to_pylist():
            self._keep(tuple(row["nodes"]), tuple(row["ids"]))
        self._deleted = set(state["deleted"].column("id").to_pylist())


def _table(rows: Sequence[tuple[object, ...]], names: tuple[str, ...], kind: pa.DataType) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table({name: pa.array(list(column), kind) for name, column in zip(names, columns, strict=True)})
