"""What the applications answer: the same topologies with functions instead of costs, thread by thread.

Tuples go from thread to thread by the groupings of the setup, in the order in which they come; every thread has a state
of its own. No time passes: what comes out must be what plain Spark gives for the same input, however many threads there
are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from steelyard.core.errors import OptionError
from steelyard.core.placing import ALL, DIRECT, FIELDS, GLOBAL, Setup
from steelyard.core.topology import Instance

Function = Callable[[dict[Any, Any], Any], Iterable[Any]]
"""From a thread's state and a tuple to the tuples that go over every edge; it may change the state."""
States = Mapping[Instance, dict[Any, Any]]


def answered(
    setup: Setup, functions: Mapping[str, Function], rows: Mapping[str, Iterable[Any]], key: Callable[[Any], Any] = str
) -> States:
    """The state of each thread after all rows.

    Parameters
    ----------
    setup
        Components, and the edges between them.
    functions
        One for each component that is no source.
    rows
        What each source emits, dealt to its threads in turn.
    key
        Of a tuple, for the grouping by fields.
    """
    missing = {one.name for one in setup.operators if not one.source} - functions.keys()
    if missing:
        raise OptionError(f"components without a function: {sorted(missing)}")
    states: dict[Instance, dict[Any, Any]] = {one: {} for one in setup.instances}
    turns: Counter[tuple[int, Instance]] = Counter()

    def sent(sender: Instance, value: Any) -> Iterator[tuple[Instance, Any]]:
        for number, edge in enumerate(setup.edges):
            if edge.sender != sender.operator:
                continue
            threads = setup.by_name[edge.receiver].parallelism
            if edge.grouping == ALL:
                yield from ((Instance(edge.receiver, to), value) for to in range(threads))
                continue
            to = turns[number, sender] + sender.number  # shuffle: each sender in turn, from a place of its own
            if edge.grouping == FIELDS:
                to = sum(str(key(value)).encode())
            elif edge.grouping == GLOBAL:
                to = 0
            elif edge.grouping == DIRECT:
                to = sender.number
            turns[number, sender] += 1
            yield Instance(edge.receiver, to % threads), value

    for name, values in rows.items():
        spouts = setup.operator(name).parallelism
        for number, value in enumerate(values):
            waiting = deque(sent(Instance(name, number % spouts), value))
            while waiting:
                thread, given = waiting.popleft()
                for output in functions[thread.operator](states[thread], given):
                    waiting.extend(sent(thread, output))
    return states


def stored(states: States, component: str) -> dict[Any, Any]:
    """What all threads of a component keep; OptionError where two have the same key."""
    found: dict[Any, Any] = {}
    for thread, state in states.items():
        if thread.operator == component:
            twice = found.keys() & state.keys()
            if twice:
                raise OptionError(f"two threads of {component!r} have {sorted(map(str, twice))[0]!r}: group by fields")
            found |= state
    return found


# ---- word count: lines to words to counts, the newest of which are stored


def split(state: dict[Any, Any], line: str) -> Iterable[str]:
    """The words of a line."""
    return line.split()


def count(state: dict[Any, Any], word: str) -> Iterable[tuple[str, int]]:
    """How often a word came until now."""
    state[word] = state.get(word, 0) + 1
    return [(word, state[word])]


def store_largest(state: dict[Any, Any], counted: tuple[str, int]) -> Iterable[Any]:
    """Keep the largest count of each word, in whatever order they come."""
    word, times = counted
    state[word] = max(times, state.get(word, 0))
    return ()


WORD_COUNT: Mapping[str, Function] = {"split": split, "count": count, "store": store_largest}

# ---- log stream processing: entries that are worth an index, and how many there are of each kind

SLOW = 1000
"""Milliseconds from which a request is slow."""


def kind_of(entry: Mapping[str, Any]) -> str | None:
    """What a rule finds in an entry; None, nothing."""
    if entry["status"] >= 500:
        return "error"
    if entry["status"] == 404:
        return "missing"
    return "slow" if entry["time_taken"] > SLOW else None


def rules(state: dict[Any, Any], entry: Mapping[str, Any]) -> Iterable[tuple[str, int, str]]:
    """Entries that a rule finds something in: what, their number, and their address."""
    kind = kind_of(entry)
    return [] if kind is None else [(kind, entry["number"], entry["uri_stem"])]


def passed_on(state: dict[Any, Any], entry: tuple[str, int, str]) -> Iterable[tuple[str, int, str]]:
    """As it is."""
    return [entry]


def store_entry(state: dict[Any, Any], entry: tuple[str, int, str]) -> Iterable[Any]:
    """Keep an entry by its number."""
    kind, number, stem = entry
    state[number] = (kind, stem)
    return ()


def counted_here(state: dict[Any, Any], entry: tuple[str, int, str]) -> Iterable[tuple[str, int]]:
    """One more of its kind."""
    return [(entry[0], 1)]


def store_sum(state: dict[Any, Any], counted: tuple[str, int]) -> Iterable[Any]:
    """Add up counts of each kind."""
    kind, times = counted
    state[kind] = state.get(kind, 0) + times
    return ()


LOGS: Mapping[str, Function] = {
    "rules": rules,
    "indexer": passed_on,
    "counter": counted_here,
    "store1": store_entry,
    "store2": store_sum,
}


def sums(states: States, component: str) -> dict[Any, int]:
    """What all threads of a component counted, added up."""
    found: Counter[Any] = Counter()
    for thread, state in states.items():
        if thread.operator == component:
            found.update(state)
    return dict(found)


# ---- continuous queries: owners of vehicles that go too fast


def queries(table: Iterable[Mapping[str, Any]]) -> Mapping[str, Function]:
    """Functions that look a table through, row by row, for each query, and keep what they find."""
    vehicles = list(table)

    def query(state: dict[Any, Any], asked: Mapping[str, Any]) -> Iterable[tuple[int, tuple[str, ...]]]:
        hits = (
            vehicle["owner"]
            for vehicle in vehicles
            if vehicle["plate"].endswith(asked["ending"]) and vehicle["speed"] > asked["above"]
        )
        return [(asked["query"], tuple(sorted(hits)))]

    def file(state: dict[Any, Any], found: tuple[int, tuple[str, ...]]) -> Iterable[Any]:
        state[found[0]] = found[1]
        return ()

    return {"query": query, "file": file}
