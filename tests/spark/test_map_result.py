"""What a map function gives that is no batch of its schema is told as a mistake of the program, with what it gave."""

from __future__ import annotations

import json

import pandas
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from steelyard.core import BadRowError, BatchError
from steelyard.resident.generations import JobError
from steelyard.spark.isolate import isolate
from steelyard.spark.program import Bound, MapFunction, Program
from steelyard.spark.resident_program import _Tidy
from steelyard.spark.resident_query import _own
from steelyard.spark.rows import applied

SCHEMA = T.StructType([T.StructField("k", T.LongType()), T.StructField("v", T.DoubleType())])
ROWS = pa.record_batch({"k": [1, 2, 3], "v": ["1.5", "2", "3"]})


def outcome(function, form="arrow"):
    return isolate(ROWS, applied(MapFunction(function, SCHEMA, form)))


@pytest.mark.parametrize(
    ("function", "form", "said"),
    [
        (
            lambda part: None,
            "arrow",
            r"gave None; it must give a pyarrow.RecordBatch or Table with .* k, v: has it no ret",
        ),
        (lambda part: part.to_pandas(), "arrow", r"gave a pandas.DataFrame; .* or say \.map\(\.\.\., form='pandas'\)$"),
        (lambda part: 3, "arrow", "gave an int; it must give"),
        (
            lambda part: part.rename_columns(["K", "v"]),
            "arrow",
            r"gave the columns K, v, and by its schema it gives k, v: there is no 'k' \(is it 'K'\?\)\. Mend",
        ),
        (
            lambda part: pa.record_batch([part["k"], part["k"], part["v"]], names=["k", "k", "v"]),
            "arrow",
            "gave the columns k, k, v, .*: 'k' is there 2 times",
        ),
        (
            lambda part: part.set_column(1, "v", pa.array([[1.0]] * part.num_rows)),
            "arrow",
            "gave v list<item: double>, and by its schema it gives v double: mend one of them",
        ),
        (
            lambda frame: None,
            "pandas",
            "gave None; it must give a pandas.DataFrame with the columns k, v: has it no ret",
        ),
        (lambda frame: frame.k, "pandas", "gave a pandas.Series; it must give a pandas.DataFrame"),
        (lambda frame: ROWS, "pandas", r"gave a pyarrow.RecordBatch; .* or say \.map\(\.\.\., form='arrow'\)$"),
        (lambda frame: frame[["k"]], "pandas", "gave the columns k, and by its schema it gives k, v: there is no 'v'"),
        (
            lambda part: part.set_column(1, "v", pa.array(["x"] * part.num_rows)),
            "arrow",
            r"gave what its schema \(k int64, v double\) does not say: Failed to parse string: 'x'.*: mend one of them",
        ),
        (
            lambda frame: frame.assign(v="x"),
            "pandas",
            r"gave what its schema \(k int64, v double\) does not say: .*x.*: mend one of them",
        ),
        (lambda part: part.k, "arrow", r"was given a pyarrow.RecordBatch and uses it as a .*: say .* form='pandas'"),
        (lambda part: part.iloc[0], "arrow", r"was given a pyarrow.RecordBatch and uses it .*: say .* form='pandas'"),
    ],
)
def test_what_is_no_batch_of_the_schema_is_told_with_what_was_given_and_what_was_wanted(function, form, said):
    with pytest.raises(BatchError, match=rf"^map function <lambda> \(test_map_result\.py:\d+\) {said}") as raised:
        outcome(function, form)
    assert "drop" not in str(raised.value)


def test_a_value_that_does_not_fit_belongs_to_its_row():
    good, bad = outcome(
        lambda part: part.set_column(1, "v", pa.array([v if v != "2" else "two" for v in part["v"].to_pylist()]))
    )
    assert [one["k"].to_pylist() for one in good] == [[1], [3]]
    ((why, row),) = bad
    assert "two" in why
    assert row["k"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("form", "made"),
    [
        ("arrow", lambda part: pa.RecordBatch.from_pylist([json.loads(text) for text in part["v"].to_pylist()])),
        ("pandas", lambda part: pandas.DataFrame([json.loads(text) for text in part["v"]])),
    ],
)
@pytest.mark.parametrize("poison", ['{"error": "x"}', '{"k": 7, "v": {"n": 1}}', "no JSON", '{"k": 8}'])
def test_a_row_whose_result_has_other_columns_is_a_bad_row_beside_good_ones(form, made, poison):
    texts = [poison, *[json.dumps({"k": number, "v": number / 2}) for number in range(6)]]
    rows = pa.record_batch({"k": range(7), "v": texts})
    good, bad = isolate(rows, applied(MapFunction(made, SCHEMA, form)))
    found = {row["k"]: row["v"] for part in good for row in part.to_pylist()}
    assert {key: value for key, value in found.items() if key in range(6)} == {key: key / 2 for key in range(6)}
    assert len(bad) <= 1
    good, bad = isolate(rows.slice(0, 1), applied(MapFunction(made, SCHEMA, form)))  # of one row nobody can tell
    assert len(good) + len(bad) == 1


def test_a_frame_of_a_users_own_class_is_a_frame():
    class Frame(pandas.DataFrame):
        pass

    good, bad = isolate(ROWS, applied(MapFunction(lambda frame: Frame(frame.astype({"v": float})), SCHEMA, "pandas")))
    assert [part.num_rows for part in good] == [3]
    assert not bad


def test_a_function_that_fails_on_every_row_of_a_resident_source_is_a_mistake_of_the_program():
    def typo(part):
        return part.column("nothing")

    def picky(part):
        if 2 in part["k"].to_pylist():
            raise ValueError("no twos")
        return part

    tidy = {}
    for function in (typo, picky):
        program = Program(("k",), {}, map=MapFunction(function, SCHEMA, "arrow"))
        tidy[function] = _Tidy(Bound(program, SCHEMA, SCHEMA), ROWS.schema, "fail")
    many = pa.concat_batches([ROWS] * 4)
    with pytest.raises(BatchError, match=r"raised on every one of 12 rows.*KeyError.*in typo\)") as raised:
        tidy[typo](many)
    assert "drop" not in str(raised.value)
    with pytest.raises(BadRowError, match=r"1 row: map function: ValueError: no twos.*on_bad_rows\('drop'\)"):
        tidy[picky](ROWS)
    through = _own(JobError(f"operator 'source' (instance 0, worker 0): BatchError: {raised.value}"), "barrels")
    assert (type(through), str(through)) == (BatchError, f"barrels: {raised.value}")
