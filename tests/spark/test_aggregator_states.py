"""What a Python aggregate sees and gives: nulls, digits, states that were forgotten, and PySpark's values."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import Row
from pyspark.sql import types as T

import steelyard as sy
from steelyard.core import BatchError, OptionError
from steelyard.resident.states import Groups
from steelyard.spark.aggregator import never_gives
from steelyard.spark.aggregator_check import check_aggregator, check_forms
from steelyard.spark.agreement import added_otherwise, merged_otherwise
from steelyard.spark.resident_program import PythonAggregate
from steelyard.spark.row_aggregator import from_arrow, to_arrow
from steelyard.spark.states import added, decoded, encoded, finished, merged, subtracted
from tests.spark.cases import EitherMean, Longest, Mean

NUMBER = pa.struct({"n": pa.int64()})
PAIR = pa.struct({"n": pa.int64(), "m": pa.int64()})
ONE_GROUP = (np.arange(2), np.array([0, 2]))


class Total(sy.Aggregator):
    """A sum of whole numbers or booleans, which must not have nulls."""

    state = "n bigint"
    result = "bigint"

    def zero(self):
        return 0

    def add(self, state, values):
        return state + int(values.sum())

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return state


class Falses(Total):
    def add(self, state, values):
        known = values[~np.isnan(values)] == 0 if values.dtype.kind == "f" else ~values
        return state + int(known.sum())


class BlockFalses(Falses):
    def add_block(self, columns, offsets):
        (values,) = columns
        known = values == 0 if values.dtype.kind == "f" else ~values
        return (np.add.reduceat(known.astype(np.int64), offsets[:-1]),)


def forgetful(*steps, base=Total):
    """A class that gives None in these steps, which its code does not show."""
    nothing = None
    return type("Mine", (base,), {step: lambda self, left, right: nothing for step in steps})


class Forgotten(Total):
    """As it is written by mistake."""

    def finish(self, state):
        state + 1


class AlsoForgotten(Total):
    def merge(self, left, right):
        if left:
            left += right


def ways_to_return():
    """Methods that give something in at least one way."""

    def tried(self, state):
        try:
            return state[0]
        finally:
            state = None

    def within(self, state):
        with np.errstate(all="ignore"):
            return state

    def last(self, state):
        for one in state or ():
            if one:
                return one
        return None

    def caught(self, state):
        try:
            return 1 / state
        except ZeroDivisionError:
            return None

    def matched(self, state):
        match state:
            case 0:
                return None
            case _:
                return state

    def raising(self, state):
        raise ValueError(state)

    def yielding(self, state):
        yield state

    return [tried, within, last, caught, matched, raising, yielding, lambda self, state: state and None, Mean.finish]


@pytest.mark.parametrize("method", ways_to_return())
def test_a_method_that_gives_something_in_one_way_is_not_taken_for_one_without_a_return(method):
    assert not never_gives(method)
    assert not never_gives(type("Mine", (Total,), {"finish": method})().finish)


# Nulls


@pytest.mark.parametrize("kind", [Falses, BlockFalses])
def test_a_null_in_one_key_does_not_change_the_booleans_of_another(kind):
    column = pa.array([False, False, True, False, None])
    found = added(kind().of("ok"), [column], np.arange(5), np.array([0, 3, 5]), NUMBER)
    assert decoded(found) == [2, 1]


@pytest.mark.parametrize("kind", [Total, type("Blocks", (Total,), {"add_block": lambda self, columns, offsets: 1 / 0})])
@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, -(2**63)])
def test_whole_numbers_that_lose_digits_beside_a_null_are_refused_by_column_and_remedy(kind, large):
    columns = [pa.array([large, 1, 5, None])]
    told = "column 'v' has nulls beside whole numbers beyond 2\\*\\*53.*fill the nulls.*decimal.*takes_arrow = True in"
    with pytest.raises(BatchError, match=told):
        added(kind().of("v"), columns, np.arange(4), np.array([0, 4]), NUMBER)


def test_large_numbers_and_nulls_of_different_keys_or_in_arrow_arrays_are_taken():
    use = type("Sums", (Total,), {"add": lambda self, state, values: state + int(np.nansum(values))})().of("v")
    column = pa.array([2**60 + 1, 1, 5, None, 2**53, None])
    assert added(use, [column], np.arange(6), np.array([0, 2, 4, 6]), NUMBER) == [2**60 + 2, 5, 2**53]

    class Arrow(Total):
        takes_arrow = True

        def add(self, state, values):
            return state + sum(values.drop_null().to_pylist())

    assert added(Arrow().of("v"), [column], np.arange(6), np.array([0, 6]), NUMBER) == [2**60 + 7 + 2**53]


@pytest.mark.spark
def test_both_engines_tell_of_digits_that_would_be_lost(spark):
    rows = spark.createDataFrame([("a", 2**60 + 1), ("a", None)] * 20, "k string, v bigint")
    with pytest.raises(PythonException, match="aggregate 'n': column 'v' has nulls beside whole numbers beyond"):
        sy.stream(rows).group_by("k").agg(n=Total().of("v")).to_df().collect()
    groups = Groups.of([pa.array(["a", "a"])])
    with pytest.raises(BatchError, match=r"^aggregate 'n': column 'v' has nulls beside whole numbers beyond.*arrays$"):
        PythonAggregate("n", Total().of("v"), NUMBER, pa.int64()).added([pa.array([2**60 + 1, None])], groups)


# States that were forgotten


def test_a_step_that_gives_none_is_asked_for_its_return():
    told = r"^Mine.{}\(\) gave None: has it no return\?$"
    with pytest.raises(BatchError, match=told.format("add")):
        added(forgetful("add")().of("v"), [pa.array([1, 2])], *ONE_GROUP, NUMBER)
    for kind, state in ((NUMBER, 1), (PAIR, (1, 2))):
        states = encoded([state, state], kind, "add()")
        with pytest.raises(BatchError, match=told.format("merge")):
            merged(forgetful("merge")().of("v"), states, np.array([0, 2]), kind)
        with pytest.raises(BatchError, match=told.format("subtract")):
            subtracted(forgetful("subtract")().of("v"), states, states, kind)


def test_none_may_be_the_state_of_a_class_that_begins_with_it_or_whose_blocks_have_it():
    use, kind = Longest().of("t"), pa.struct({"longest": pa.string()})
    assert added(use, [pa.array([None, None], pa.string())], *ONE_GROUP, kind) == [None]
    assert merged(use, encoded([None, None], kind, "add()"), np.array([0, 2]), kind) == [None]
    nulls = encoded([None, 1], NUMBER, "add()")
    first = type("First", (Total,), {"merge": lambda self, left, right: left})
    assert merged(first().of("v"), nulls, np.array([0, 2]), NUMBER) == [None]
    with pytest.raises(BatchError, match="gave None"):  # several fields are a tuple, whatever it begins with
        added(forgetful("add", base=NoneAtFirst)().of("v"), [pa.array([1, 2])], *ONE_GROUP, PAIR)


class NoneAtFirst(Total):
    """Begins with None for a state of several fields."""

    state = "n bigint, m bigint"

    def zero(self):
        return None

    def add(self, state, values):
        n, m = state or (0, 0)
        return (n + len(values), m + 1)

    def merge(self, left, right):
        return (left[0] + right[0], left[1] + right[1])

    def finish(self, state):
        return state and state[0]


@pytest.mark.spark
def test_both_engines_tell_of_a_merge_without_a_return_and_no_result_is_null(spark):
    class Late(Total):  # of no rows it gives a state
        def merge(self, left, right):
            return left + right if left == right == 0 else None  # in part of its ways

    rows = spark.range(0, 8, 1, 2).selectExpr("id % 2 as k", "id + 1 as v")
    described = sy.stream(rows).group_by("k").agg(n=Late().of("v")).on_bad_rows("drop")
    with pytest.raises(PythonException, match=r"BatchError: aggregate 'n': Late.merge\(\) gave None: has it no return"):
        described.to_df().collect()
    one = PythonAggregate("n", Late().of("v"), NUMBER, pa.int64())
    with pytest.raises(BatchError, match=r"^aggregate 'n': Late.merge\(\) gave None: has it no return\?$"):
        one.merged(encoded([1, 2], NUMBER, "add()"), Groups.of([pa.array(["a", "a"])]))


# What is told at the start

ROWS = T.StructType().add("k", "string").add("price", "double").add("qty", "long")


def checked(made, *columns):
    check_aggregator("m", made.of(*columns))
    check_forms("m", made.of(*columns), ROWS)


def with_add(add, **others):
    return type("Mine", (Mean,), {"add": add} | others)()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("made", "columns", "told"),
    [
        (
            Mean(),
            ("price", "qty"),
            r"Mean.add\(state, values\) cannot be called with \(state, price, qty\): too many.*\n",
        ),
        (with_add(lambda self, state, x, y: state), ("price",), r"Mine.add\(state, x, y\) cannot be called with.*'y'"),
        (with_add(lambda self, state, *, x: state), ("price",), r"Mine.add\(state, \*, x\) cannot be called with"),
        (with_add(Mean.add, merge=lambda self, left: left), ("price",), r"Mine.merge\(left\) cannot be called with"),
        (with_add(Mean.add, add_block=lambda self, columns: columns), ("price",), r"Mine.add_block\(columns\) cannot"),
        (forgetful("merge")(), ("qty",), r"Mine.merge\(\) gave None: has it no return\?\n"),
        (Forgotten(), ("qty",), r"Forgotten.finish\(\) gave None: has it no return\?$"),
        (AlsoForgotten(), ("qty",), r"AlsoForgotten.merge\(\) gave None: has it no return\?$"),
        (forgetful("add")(), ("qty",), r"Mine.add\(\) gave None: has it no return\?$"),
        (
            with_add(Mean.add, zero=lambda self: None),
            ("price",),
            r"Mine.zero\(\) gives None, and add\(None, ...\) raises TypeError: 'NoneType' object is not.*;\n",
        ),
    ],
)
def test_a_class_that_cannot_add_is_told_before_the_query_starts(spark, made, columns, told):
    with pytest.raises(OptionError, match=f"^aggregate 'm': {told}"):
        checked(made, *columns)


@pytest.mark.spark
def test_every_way_to_take_the_columns_is_fine(spark):
    ways = [
        lambda self, state, *columns: state,
        lambda self, state, price, qty=None: state,
        lambda self, state, price, qty, unused=1, **more: state,
        lambda *everything: everything[1],
        staticmethod(lambda state, price, qty: state),
    ]
    for add in ways:
        checked(with_add(add), "price", "qty")
    checked(with_add(ways[1]), "price")
    checked(NoneAtFirst(), "qty")
    checked(Longest(), "k")
    checked(type("Mine", (Total,), {"merge": np.add})(), "qty")


# Two forms that disagree


class Scaled(sy.Aggregator):
    """Two forms of which the one of a block may be wrong in one step."""

    state = "float_total double"
    result = "double"
    of_add, of_finish = 1.0, 1.0

    def zero(self):
        return 0.0

    def add(self, state, values):
        return state + float(values.sum())

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return state

    def add_block(self, columns, offsets):
        return (np.add.reduceat(columns[0], offsets[:-1]) * self.of_add,)

    def finish_block(self, states):
        return states[0] * self.of_finish


def otherwise(made, values):
    use, kind = made().of("x"), pa.struct({"float_total": pa.float64()})
    columns, order, offsets = [pa.array(values)], np.arange(len(values)), np.array([0, len(values)])
    states = encoded(added(use, columns, order, offsets, kind), kind, "add()")
    pairs = pa.concat_arrays([states, states])
    whole = encoded(merged(use, pairs, np.array([0, 2]), kind), kind, "merge()")
    return [
        added_otherwise("m", use, columns, order, offsets, states, pa.float64()),
        merged_otherwise("m", use, pairs, np.array([0, 2]), whole, pa.float64()),
    ]


def test_the_form_that_is_wrong_is_named():
    wrong_add = type("Mine", (Scaled,), {"of_add": 2.0})
    assert "disagree: add_block() gives 6.0, add() gives 3.0" in otherwise(wrong_add, [1.0, 2.0])[0]
    wrong_finish = type("Mine", (Scaled,), {"of_finish": 2.0})
    told = otherwise(wrong_finish, [1.0, 2.0])
    assert "disagree: finish_block() gives 6.0, finish() gives 3.0" in told[0]
    assert "disagree: finish_block() gives 12.0, finish() gives 6.0" in told[1]


def test_small_results_are_compared_by_their_own_size_and_rounding_is_no_difference():
    assert otherwise(type("Mine", (Scaled,), {"of_add": 5.0}), [1e-10])[0]
    assert otherwise(type("Mine", (Scaled,), {"of_add": 1.0001}), [1.0])[0], "a name with float in it says nothing"
    assert otherwise(Scaled, [1e-10, 3e-12]) == ["", ""]
    many = np.random.default_rng(1).normal(0, 1e9, 200)
    cancelled = [*many, *-many[::-1], 1e-7]  # what is left is rounding
    assert otherwise(Scaled, cancelled[:256]) == ["", ""]
    assert otherwise(Scaled, [float("nan"), 1.0]) == ["", ""]


def test_a_wrong_block_of_floats_of_32_bits_has_more_room():
    use = type("Mine", (Scaled,), {"of_add": 1.0001})().of("x")
    kind = pa.struct({"float_total": pa.float64()})
    columns = [pa.array([1.0, 2.0], pa.float32())]
    states = encoded(added(use, columns, *ONE_GROUP, kind), kind, "add()")
    assert added_otherwise("m", use, columns, *ONE_GROUP, states, pa.float64()) == ""
    assert EitherMean().has_both_forms


# Classes of PySpark's shape

WORDS = T.MapType(T.StringType(), T.LongType())
PLACE = T.StructType().add("name", T.StringType()).add("seen", T.TimestampType())


class Diary:
    """How often each word came, where the last one was, and the times of all."""

    bufferSchema = (  # noqa: N815 - PySpark's name
        T.StructType().add("words", WORDS).add("last", PLACE).add("times", T.ArrayType(T.TimestampType()))
    )
    outputType = T.TimestampType()  # noqa: N815 - PySpark's name

    def zero(self):
        return ({}, None, [])

    def reduce(self, buffer, row):
        words, last, times = buffer
        (tags, place) = row
        assert type(tags) is dict
        assert isinstance(place, Row)
        assert place.seen.tzinfo is None
        counts = {word: words.get(word, 0) + tags.get(word, 0) for word in {*words, *tags}}
        return (counts, max(filter(None, (last, place)), key=lambda one: one.seen), [*times, place.seen])

    def merge(self, one, other):
        for words, last, times in (one, other):
            assert type(words) is dict
            assert isinstance(last, Row)
            assert all(at.tzinfo is None for at in (last.seen, *times))
        words = {word: one[0].get(word, 0) + other[0].get(word, 0) for word in {*one[0], *other[0]}}
        return (words, max(one[1], other[1], key=lambda last: last.seen), one[2] + other[2])

    def finish(self, buffer):
        words, last, times = buffer
        assert words["a"] == len(times)
        assert last.seen == max(times)
        return datetime.combine(last.seen.date(), last.seen.time())


@pytest.fixture
def far_from_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_maps_structs_and_times_are_pysparks_also_behind_a_task():
    use = sy.udaf(Diary()).of("tags", "place")
    state = pa.struct(
        {
            "words": pa.map_(pa.string(), pa.int64()),
            "last": pa.struct({"name": pa.string(), "seen": pa.timestamp("us", "UTC")}),
            "times": pa.list_(pa.timestamp("us", "UTC")),
        }
    )
    at = [datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in range(4)]
    tags = pa.array([[("a", 1), ("b", 2)], [("a", 1)], [("a", 1)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    places = pa.array([{"name": str(one.hour), "seen": one} for one in at], state.field("last").type)
    columns = [tags, places]
    sent = encoded(added(use, columns, np.arange(4), np.array([0, 1, 3, 4]), state), state, "add()")
    whole = encoded(merged(use, sent, np.array([0, 3]), state), state, "merge()")
    assert sorted(whole.field("words")[0].as_py()) == [("a", 4), ("b", 2)]
    assert whole.field("times")[0].as_py() == at
    assert finished(use, whole, state, pa.timestamp("us", "UTC")).to_pylist() == [at[3]]
    assert finished(use, merged(use, sent, np.array([0, 3]), state), state, pa.timestamp("us", "UTC")).to_pylist() == [
        at[3]
    ]


def test_plain_values_are_handed_on_as_they_are():
    for kind in (pa.int64(), pa.string(), pa.list_(pa.float64()), pa.date32(), pa.timestamp("us"), pa.decimal128(9, 2)):
        assert from_arrow(kind) is None
        assert to_arrow(kind) is None
    assert to_arrow(pa.map_(pa.string(), pa.date32())) is None
    assert from_arrow(pa.map_(pa.string(), pa.date32()))({"a": date(2024, 5, 1)}) == {"a": date(2024, 5, 1)}


@pytest.mark.parametrize(("base", "buffer"), [(1, (0,)), (2, (0, 0))])
def test_a_reduce_or_merge_of_pysparks_shape_without_a_return_is_told(base, buffer):
    schema, nothing = T.StructType([T.StructField(f"f{i}", T.LongType()) for i in range(base)]), None
    methods = {"zero": lambda self: buffer, "finish": lambda self, state: 0, "merge": lambda self, one, two: nothing}
    methods |= {"bufferSchema": schema, "outputType": T.LongType(), "reduce": lambda self, state, row: nothing}
    with pytest.raises(OptionError, match=r"^udaf: Mine.reduce\(\) gave None: has it no return\?$"):
        sy.udaf(type("Mine", (), methods | {"reduce": lambda self, state, row: None})())
    use = sy.udaf(type("Mine", (), methods)()).of("v")
    kind = pa.struct({field.name: pa.int64() for field in schema})
    with pytest.raises(BatchError, match=r"^Mine.reduce\(\) gave None: has it no return\?$"):
        added(use, [pa.array([1])], np.arange(1), np.array([0, 1]), kind)
    states = encoded([buffer[0] if base == 1 else buffer] * 2, kind, "add()")
    with pytest.raises(BatchError, match=r"^Mine.merge\(\) gave None: has it no return\?$"):
        merged(use, states, np.array([0, 2]), kind)


def test_a_buffer_that_arrow_cannot_hold_is_refused_at_the_call():
    months = T.StructType().add("months", T.YearMonthIntervalType())
    with pytest.raises(OptionError, match="udaf: Mine cannot take column 'months', a interval year to month"):
        sy.udaf(type("Mine", (Diary,), {"bufferSchema": months})())


ENDS = pa.struct([("low", pa.int64()), ("high", pa.float64())])


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), max_size=20),
    st.sampled_from([tuple, list, iter, lambda pair: np.array(pair, object)]),
)
def test_a_state_of_several_fields_is_any_iterable_of_them(states, as_given):
    given_states = [as_given(state) for state in states]
    assert decoded(encoded(given_states, ENDS, "add()")) == states


@pytest.mark.parametrize("wrong", [(1, 2.0, 3), (1,), [1], "ab", {"low": 1, "high": 2.0}, None, 7])
def test_among_many_states_the_one_that_is_none_is_told(wrong):
    with pytest.raises(ValueError, match="add\\(\\) gave what is no state of \\(low int64, high double\\)"):
        encoded([(1, 2.0)] * 3 + [wrong], ENDS, "add()")


def counting(asked, **own):
    class Counting(sy.Aggregator):
        state, result = "n bigint", "bigint"

        def zero(self):
            asked.append("zero")
            return 0

        def add(self, state, values):
            return state + len(values)

        def merge(self, left, right):
            return left + right

        def finish(self, state):
            return state

    made = Counting()
    vars(made).update(own)
    return made


def test_a_class_whose_objects_are_alike_is_checked_once_for_its_columns_and_types(spark):
    asked = []
    kind = type(counting(asked))
    rows = T.StructType().add("a", "long").add("b", "long")

    def is_asked(check, column, *more):
        before = len(asked)
        check("n", kind().of(column), *more)
        return len(asked) > before

    assert [is_asked(check_aggregator, column) for column in ("a", "a", "b")] == [True, False, True]
    assert [is_asked(check_forms, "a", schema) for schema in (rows, rows)] == [True, False]
    assert is_asked(check_forms, "a", T.StructType().add("a", "double"))
    kind.merge = lambda self, left, right: None  # what was found before says nothing of another method
    with pytest.raises(OptionError, match="gave None"):
        check_aggregator("n", kind().of("a"))


def test_an_object_with_attributes_of_its_own_is_checked_every_time(spark):
    asked = []
    made = counting(asked, factor=2)
    for _ in range(2):
        before = len(asked)
        check_aggregator("n", made.of("a"))
        assert len(asked) > before
