"""Every policy of every family, found by looking into its folder: it can be named, shown, and made again."""

from __future__ import annotations

from contextlib import suppress
from inspect import Parameter
from pathlib import Path

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.control import require_shown
from steelyard.core import OptionError
from steelyard.core.needs import OF_BATCHES, OF_JOBS, OF_SCENARIOS
from steelyard.core.registry import Family
from steelyard.policies import FAMILIES, as_markdown, spelled_out
from steelyard.resident import Flow, Memory, Rows, run
from steelyard.scaling import Fixed
from steelyard.scaling.registry import ELASTICITY
from steelyard.sim import Exactly, Operator, Scenario, Source, simulate

ENTRIES = [
    pytest.param(family, entry, id=f"{name}: {entry.name}")
    for name, family in FAMILIES.items()
    for entry in family.entries.values()
]


@pytest.mark.parametrize(("family", "entry"), ENTRIES)
def test_a_policy_is_made_by_its_name_and_says_what_it_is(family, entry):
    made = family.named(spelled_out(entry).replace("...", "1"))
    assert type(made) is entry.kind
    assert family.named(made) is made
    if Parameter.empty in entry.parameters.values():
        with pytest.raises(OptionError, match="needs its parameter"):
            family.named(entry.name)
    else:
        assert type(family.named(entry.name)) is entry.kind
    assert repr(made)
    assert len(entry.what) > 20
    assert entry.runs
    assert (Path(__file__).parents[1] / "src" / "steelyard" / entry.file).exists()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_what_is_no_policy_is_refused_with_what_is_asked_for(family):
    with pytest.raises(OptionError, match=f"unknown {family.what} 'nobody'"):
        family.named("nobody")
    for other in (3, None, object()):
        with pytest.raises(OptionError, match=f"an? {family.what} is a name or an object with"):
            family.named(other)


def test_a_class_in_the_folder_is_enough(tmp_path, monkeypatch):
    folder = tmp_path / "cutters"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "thirds.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "@dataclass\nclass Thirds:\n    'Cuts whatever it is given into three parts.'\n"
        "    parts: int = 3\n    name: ClassVar[str] = 'thirds'\n    def cut(self): ...\n"
        "class Helper:\n    name = 'helper'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cutters = Family("cutters", "cutter", "cuts", ("cut",), lambda kind: ("here",))
    assert cutters.names() == ["thirds"]
    assert cutters.named("thirds?parts=4").parts == 4


def test_the_page_of_policies_is_what_the_registry_says():
    page = (Path(__file__).parents[1] / "docs" / "policies.md").read_text()
    assert page == as_markdown(), "write it anew: steelyard policies --markdown > docs/policies.md"


ROWS = pa.table({"k": [n % 5 for n in range(200)], "n": list(range(200))})


def on_workers(entry):
    """A small dataflow on resident workers."""
    flow = Flow("rows")
    source = flow.source(Rows(ROWS), batch_rows=50)
    if entry in FAMILIES["partition"].entries.values():
        made = source.key_by("k", grouping=entry.name).aggregate(n=count(), parallelism=2, emit="end")
    else:
        made = source.shuffle(f"{entry.name}?cost_of=k" if "cost_of" in entry.parameters else entry.name).map(
            lambda batch: batch, ROWS.schema, parallelism=2
        )
    made.sink(Memory(), name="out")
    return sum(run(flow.dataflow(), workers=1).table("out")["n"].to_pylist())


@pytest.mark.filterwarnings("ignore::steelyard.core.notices.NoEffectWarning")
@pytest.mark.parametrize(("family", "entry"), [one for one in ENTRIES if one.id.startswith(("partition", "grouping"))])
def test_a_policy_runs_where_the_registry_says_that_it_does(family, entry):
    cluster = Scenario.chain(
        Source("log", 100, keys=[1, 2, 3]), Operator("work", Exactly(0.001), parallelism=2), grouping=entry.name
    )
    assert simulate(cluster, 2.0).total("work").throughput > 50
    if "resident" in entry.runs:
        assert on_workers(entry) == (200 if family is FAMILIES["partition"] else sum(range(200)))
    else:
        with pytest.raises(OptionError, match=entry.name):
            on_workers(entry)


@pytest.mark.parametrize(
    ("needs", "runs"),
    [
        ((), ("microbatch", "groups", "resident", "simulator")),
        (("batch.load",), ("microbatch", "groups", "simulator")),
        (("cpu", "instances"), ("resident", "simulator")),
        (("operators", "costs"), ("resident",)),
        (("batch", "operators"), ()),
        (property(lambda self: ("batch.load",)), ("microbatch", "groups", "simulator")),
    ],
)
def test_an_autoscaler_runs_where_it_sees_what_it_needs(needs, runs):
    found = type("Mine", (), {"name": "mine", "needs": needs, "decide": Fixed.decide})
    assert ELASTICITY._runs(found) == runs


@pytest.mark.parametrize("entry", ELASTICITY.entries.values(), ids=ELASTICITY.names())
def test_an_autoscaler_is_taken_where_the_registry_says_that_it_runs_and_refused_elsewhere(entry):
    made = ELASTICITY.named(spelled_out(entry).replace("...", "1"))
    shown = {"microbatch": (OF_BATCHES,), "groups": (OF_BATCHES,), "resident": (OF_JOBS,)}
    shown["simulator"] = (OF_BATCHES, OF_SCENARIOS)
    for engine, kinds in shown.items():
        taken = []
        for shows in kinds:
            with suppress(OptionError):
                require_shown(made, shows, engine)
                taken.append(shows)
        assert bool(taken) == (engine in entry.runs), engine
