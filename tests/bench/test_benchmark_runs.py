"""Running a benchmark: its files, its table and its last line."""

import io
import json
import platform
from types import SimpleNamespace

import pytest
from rich.console import Console

import steelyard
from steelyard.bench import Claim, Experiment, Published, Result, Run, Series, Table, Target, registry, spark_for
from steelyard.bench.environment import machine
from steelyard.bench.progress import Reporter
from steelyard.bench.registry import choose, experiment, experiments
from steelyard.bench.runner import run_experiment
from steelyard.core import OptionError


def halves(run):
    """Two figures."""
    list(run.progress.track(range(3), "counting"))
    run.progress.say("[not markup]")
    return Result(
        {"n": 2},
        {"half_ms": 0.5, "nothing": float("nan")},
        series=[Series("half", [1, 2], [0.5, 1.0])],
        published=[Published(0.4, "a paper, Table 1", "half_ms")],
        targets=[Target("half_ms", at_most=0.1, explanation="the machine was busy")],
    )


@pytest.fixture
def quiet():
    return Reporter(Console(file=io.StringIO()))


def run_halves(tmp_path, quiet, quick=True):
    console = Console(file=io.StringIO(), width=120)
    run = Run(quick=quick, seed=3, out=tmp_path / "new", progress=quiet)
    run_experiment(Experiment("halves", "Halves of things", halves, "Table 1"), run, console)
    return console.file.getvalue(), tmp_path / "new"


def test_the_last_line_is_compact_json_with_name_and_metrics(tmp_path, quiet):
    said, _ = run_halves(tmp_path, quiet)
    assert said.splitlines()[-1] == '{"name":"halves","metrics":{"half_ms":0.5,"nothing":null}}'
    assert said.endswith("}\n")


def test_the_file_holds_what_is_needed_to_judge_and_repeat_the_figure(tmp_path, quiet):
    _, out = run_halves(tmp_path, quiet)
    record = json.loads((out / "halves.json").read_text())
    assert record["command"] == "steelyard bench run halves --quick --seed 3"
    assert {"python", "pyspark", "java", "numpy", "pyarrow"} <= set(record["versions"])
    assert min(record["load"].values()) >= 0
    assert record["machine"]["cores"] >= 1
    assert record["seed"] == 3
    assert record["quick"] is True
    assert record["kind"] == "measured"
    assert record["parameters"] == {"n": 2}
    assert record["targets"][0]["explanation"] == "the machine was busy"


def test_no_file_names_the_host():
    host = platform.node()
    assert not host or host not in json.dumps(machine())


def test_a_picture_is_written_beside_the_figures(tmp_path, quiet):
    _, out = run_halves(tmp_path, quiet)
    assert (out / "halves.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_figures_are_written_and_the_remedy_is_said(tmp_path, quiet, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    said, out = run_halves(tmp_path, quiet)
    assert "pip install 'steelyard[plot]'" in said
    assert json.loads((out / "halves.json").read_text())["picture"] is None
    assert not (out / "halves.png").exists()


def test_the_table_shows_measured_beside_published_and_target(tmp_path, quiet):
    said, _ = run_halves(tmp_path, quiet)
    (row,) = [line for line in said.splitlines() if line.startswith("half_ms")]
    assert row.split() == ["half_ms", "0.5", "measured", "0.4", "at", "most", "0.1", "missed"]
    assert "the machine was busy" in said
    assert "a paper, Table 1" in said


def test_progress_stays_out_of_standard_output(tmp_path, quiet):
    said, _ = run_halves(tmp_path, quiet)
    assert "[not markup]" in quiet.console.file.getvalue()
    assert "[not markup]" not in said


def test_what_a_benchmark_raises_goes_through_and_leaves_no_file(tmp_path, quiet):
    def broken(run):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_experiment(
            Experiment("broken", "Breaks", broken), Run(out=tmp_path, progress=quiet), Console(file=io.StringIO())
        )
    assert not list(tmp_path.iterdir())


def test_a_benchmark_is_found_by_its_name_and_a_mistyped_one_gets_the_nearest():
    assert [one.name for one in choose(["planning", "planning"])] == ["planning"]
    with pytest.raises(OptionError, match="'planing': did you mean 'planning'"):
        choose(["planing"])


def test_benchmarks_are_listed_in_alphabetical_order():
    assert list(experiments()) == sorted(experiments())


def test_two_modules_cannot_use_one_name(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    experiment("twice", title="first")(halves)

    def other(run):
        return halves(run)

    other.__module__ = "elsewhere"
    with pytest.raises(ValueError, match=r"'twice' is in .* and in elsewhere"):
        experiment("twice", title="second")(other)


@pytest.mark.parametrize(
    "result",
    [
        Result({}, {"a": 1.0, "b": 2}),
        Result({}, {"a": 1.0}, series=[Series("s", [1, 10], [1, 2], kind="simulated"), Series("t", [1], [2])]),
    ],
)
def test_every_result_can_be_drawn(tmp_path, result):
    assert Experiment("any", "Any", halves).save_picture(result, tmp_path / "deep" / "a.png").stat().st_size > 1000


def test_one_drawing_gives_the_same_bytes_twice(tmp_path):
    one, result = Experiment("any", "Any", halves), Result({}, {"a": 1.0})
    first, second = (one.save_picture(result, tmp_path / name).read_bytes() for name in ("1.png", "2.png"))
    assert first == second


def test_a_session_and_its_folder_are_gone_when_the_block_ends(monkeypatch):
    asked, stopped = [], []
    fake = SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=asked.append), stop=lambda: stopped.append(True))

    def session(name, master, config, quiet, ahead):
        asked.append((name, master, config, quiet, ahead))
        return fake

    monkeypatch.setattr(steelyard, "session", session, raising=False)
    with spark_for("halves", 2, {"a": "b"}) as (spark, folder):
        assert spark is fake
        assert folder.is_dir()
    assert asked == [("steelyard bench halves", "local[2]", {"a": "b"}, True, False), "ERROR"]
    assert stopped
    assert not folder.exists()


def test_a_full_run_and_a_quick_one_pick_their_sizes():
    assert (Run().pick(10, 2), Run(quick=True).pick(10, 2)) == (10, 2)
    assert (Run(seed=4).seeds(3, 1), Run(seed=4, quick=True).seeds(3, 1)) == ([4, 5, 6], [4])


def test_claims_become_the_first_table_and_are_counted():
    claims = [Claim("a", "1x", [2.0], 1.0), Claim("b", "1x", [0.5], 1.0, reason="why")]
    result = Result({}, {"n": 1}, tables=[Table("t", ("x",), [(1,)])], claims=claims)
    assert [table.title for table in result.tables] == ["claims (of one run)", "t"]
    assert result.metrics == {"n": 1, "claims": 2, "claims_hold": 1, "claims_fail": 1, "claims_undecided": 0}
    assert result.table("claims").rows[1][-1] == "why"
    assert Result.from_dict(result.to_dict()).to_dict() == result.to_dict()
    with pytest.raises(OptionError, match="table"):
        result.table("nowhere")
