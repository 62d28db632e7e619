"""The command line: what a person types, what comes back, and the exit code."""

import json
import signal
import subprocess
import sys
import types

import pytest

from steelyard.bench import Result, registry
from steelyard.bench.registry import Experiment
from steelyard.cli import main
from steelyard.policies import FAMILIES
from steelyard.spark import doctor
from steelyard.spark.doctor import Finding
from steelyard.spark.java import JavaError


@pytest.fixture
def two_benchmarks(monkeypatch):
    def broken(run):
        raise ZeroDivisionError("no rows")

    found = {
        "broken": Experiment("broken", "Breaks", broken),
        "whole": Experiment("whole", "Holds", lambda run: Result({}, {"seed": run.seed, "quick": int(run.quick)})),
    }
    monkeypatch.setattr(registry, "experiments", lambda: found)
    return found


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["dmo"], "unknown command 'dmo': did you mean 'demo'?"),
        (["bench", "rn"], "unknown bench command 'rn': did you mean 'run'?"),
        (["bench", "run", "plannin"], "unknown benchmark 'plannin': did you mean 'planning'?"),
        (["bench", "run", "planning", "--quik"], "'--quik': did you mean '--quick'?"),
        (["bench", "run", "planning", "--sed=4"], "'--sed': did you mean '--seed'?"),
        (["demo", "--second", "4"], "'--second': did you mean '--seconds'?"),
        (["--versoin"], "'--versoin': did you mean '--version'?"),
        (["demo", "--seconds", "0"], "invalid positive number value: '0'"),
        (["bench", "run", "planning", "--seed", "-1"], "--seed"),
        (["bench", "run"], "steelyard bench list"),
        (["run"], "FILE"),
        (["doctor", "now"], "unexpected 'now'"),
        (["run", "no-such-file.toml"], "no-such-file.toml cannot be read: No such file"),
    ],
)
def test_what_is_mistyped_gets_one_line_with_the_remedy(words, remedy, capsys):
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert remedy in said.err


@pytest.mark.parametrize("words", [[], ["bench"]])
def test_without_a_command_the_help_is_shown(words, capsys):
    assert main(words) == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["bench", "run", "--help"], ["--version"]])
def test_help_and_version_succeed(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "steelyard" in capsys.readouterr().out


def test_help_does_not_load_spark_or_the_engine():
    program = (
        "import sys, steelyard.cli\n"
        "try: steelyard.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join(sorted({'pyspark', 'numba', 'pandas', 'matplotlib', 'rich'} & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"loaded: {done.stderr}"


def test_the_demonstration_gets_its_options_as_words(monkeypatch, capsys):
    given = []
    demo = types.ModuleType("steelyard.bench.demo.run")
    demo.main = lambda words: given.append(words) or 3
    monkeypatch.setitem(sys.modules, "steelyard.bench.demo.run", demo)
    monkeypatch.setattr("steelyard.bench.demo.run", demo, raising=False)
    assert main(["demo", "--out", "there", "--seconds", "20", "--seed", "5"]) == 3
    assert main(["demo"]) == 3
    assert given == [["--out", "there", "--seconds", "20", "--seed", "5"], ["--out", "out"]]


def test_control_c_ends_without_a_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "experiments", interrupted)
    assert main(["bench", "list"]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == "stopped\n"


def test_control_c_inside_compiled_code_ends_the_same_way(two_benchmarks, capsys, tmp_path):
    def wrapped(run):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise SystemError("returned a result with an exception set") from interrupt

    two_benchmarks["broken"] = Experiment("broken", "Breaks", wrapped)
    assert main(["bench", "run", "--all", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_missing_java_is_said_in_one_line(monkeypatch, capsys):
    def no_java():
        raise JavaError("Spark needs Java")

    monkeypatch.setattr(registry, "experiments", no_java)
    assert main(["bench", "list"]) == 1
    assert capsys.readouterr().err == "steelyard: Spark needs Java\n"


def test_other_runtime_errors_are_not_hidden(monkeypatch):
    def broken():
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(registry, "experiments", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main(["bench", "list"])


def test_a_reader_who_has_enough_gets_no_complaint():
    command = f"{sys.executable} -m steelyard.cli bench list | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_benchmarks_are_listed_with_what_they_measure(two_benchmarks, capsys):
    assert main(["bench", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["broken", "Breaks"], ["whole", "Holds"]]


def test_every_policy_is_listed_with_one_line(capsys):
    assert main(["policies"]) == 0
    shown = capsys.readouterr().out.splitlines()
    names = [name for family in FAMILIES.values() for name in family.names()]
    for name in names:
        (line,) = [line for line in shown if line.startswith(f"  {name} ")]
        assert len(line.split(maxsplit=1)[1]) > 20
    assert len(shown) == len(FAMILIES) + len(names)


def test_a_family_is_told_in_full(capsys):
    assert main(["policies", "partition"]) == 0
    said = capsys.readouterr().out
    assert "prompt?residual_order=ascending&zigzag_start=restart" in said
    assert "Abdelhamid 2021, Algorithm 2; runs in microbatch, groups, resident, simulator; partition/prompt.py" in said
    assert "zones" not in said
    assert main(["policies", "partitions"]) == 2
    assert "did you mean 'partition'?" in capsys.readouterr().err


def test_the_final_line_of_a_run_is_the_last_benchmarks_json(two_benchmarks, capsys, tmp_path):
    assert main(["bench", "run", "whole", "--quick", "--seed", "4", "--out", str(tmp_path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == {"name": "whole", "metrics": {"seed": 4, "quick": 1}}
    assert (tmp_path / "whole.json").exists()


def test_a_benchmark_that_breaks_fails_the_run_and_spares_the_others(two_benchmarks, capsys, tmp_path):
    assert main(["bench", "run", "--all", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["name"] == "whole"
    assert "no rows" in said.err
    assert said.err.splitlines()[-1] == "steelyard: failed: broken"


def test_a_report_is_made_of_what_was_run(two_benchmarks, capsys, tmp_path):
    main(["bench", "run", "whole", "--out", str(tmp_path)])
    assert main(["bench", "report", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path / 'report.html'}: 1 benchmark"
    assert "whole" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([Finding("Java", True, "17")], 0),
        ([Finding("Java", True, "17"), Finding("matplotlib", False, "none", "install it", needed=False)], 0),
        ([Finding("Java", False, "none", "install one"), Finding("disk", True, "3 GiB")], 1),
    ],
)
def test_the_doctor_fails_only_for_what_is_needed_and_names_every_remedy(findings, code, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda download: findings)
    assert main(["doctor"]) == code
    said = capsys.readouterr().out
    assert all(finding.remedy in said for finding in findings)


def test_without_java_no_session_is_tried(monkeypatch):
    def no_java():
        raise JavaError("install a JDK")

    monkeypatch.setattr(doctor, "require_java", no_java)
    findings = {finding.what: finding for finding in doctor.examine()}
    assert findings["Java"].remedy == "install a JDK"
    assert findings["Spark session"].found == "not tried without Java"
    assert not findings["Spark session"].good


def test_the_doctor_looks_for_disk_where_spark_is_told_to_shuffle(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'gone'}")
    finding = doctor.free_disk(doctor.local_directories())
    assert not finding.good
    assert finding.found == f"{tmp_path / 'gone'} does not exist"


@pytest.mark.parametrize(("gib", "good"), [(1.0, False), (8.0, True), (None, True)])
def test_little_memory_is_a_warning(gib, good):
    finding = doctor.memory(gib)
    assert finding.good is good
    assert not finding.needed


def test_a_pipeline_is_checked_and_explained_without_spark(tmp_path, capsys):
    file = tmp_path / "fares.toml"
    file.write_text(
        'key = "medallion"\nsource = { format = "steelyard", workload = "taxi" }\n'
        'aggregates = { total = { sum = "fare_amount" } }\nsink = { format = "console" }\n'
    )
    assert main(["run", str(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "total = sum(fare_amount)" in said
    assert "format steelyard, workload taxi" in said


def test_every_mistake_of_a_pipeline_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "fares.toml"
    file.write_text('keys = "medallion"\n\n[sink]\nformat = "consol"\n')
    assert main(["run", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file}:1: unknown field 'keys': did you mean 'key'?" in said
    assert f"{file}:4: format in [sink]: unknown format 'consol': did you mean 'console'?" in said
    assert "Traceback" not in said


def test_the_doctor_tells_a_connector_of_another_spark_from_its_own(tmp_path):
    from steelyard.spark.doctor import cached_connector
    from steelyard.spark.kafka import Coordinate

    wanted = Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.3.0")
    assert "is not there" in cached_connector(wanted, tmp_path).found
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0-abcdef").mkdir()
    other = cached_connector(wanted, tmp_path)
    assert not other.good
    assert "only that of Spark 4.2.0" in other.found
    assert "sy.session(kafka=steelyard.spark.kafka.STAND_IN_PACKAGES)" in other.remedy
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.3.0-abcdef").mkdir()
    assert cached_connector(wanted, tmp_path).good


def test_a_session_runs_where_spark_submit_says(monkeypatch):
    from steelyard.spark.session import chosen_master

    for name in ("SPARK_MASTER", "MASTER", "SPARK_CONNECT_MODE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert chosen_master(None, {}) == "local[*]"
    assert chosen_master("local[2]", {"spark.master": "yarn"}) == "local[2]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")  # as spark-submit does
    assert chosen_master(None, {}) is None
