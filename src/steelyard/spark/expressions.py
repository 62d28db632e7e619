"""Expressions of Spark's analysed plans as expressions of the resident engine.

Only what is certainly the same in both is translated; `UntranslatableError` says what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from steelyard.resident import operations as op
from steelyard.resident.expressions import NULL, RAISE, WRAP, Call, Choice, Constant, Expression, First, Logical
from steelyard.spark.arrow import arrow_schema

CATALYST = "org.apache.spark.sql.catalyst.expressions."
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00", "UTC+00:00", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Of the largest whole number of so many bits."""
_LARGEST_INT = (1 << 31) - 1
_OVERFLOW = "it overflows: cast to a larger type first, or use a try_ function of Spark, which gives null"
_BY_ZERO = "division by zero: leave such rows out before, or use try_divide, which gives null"
_NO_FIT = "a value does not fit into the type that it is cast to: use try_cast, which gives null"
_NO_TEXT = "bytes that are no UTF-8 are cast to string: keep them as binary"

Leaf = Callable[[Any], Expression]
"""The expression of an attribute of the plan, or of a field of one; UntranslatableError for any other node."""


class UntranslatableError(Exception):
    """An expression that the resident engine has not, as Spark writes it."""


def translated(node: Any, leaf: Leaf) -> Expression:
    """An expression of Spark's, of what `leaf` knows; UntranslatableError for what is not the same here."""
    kind = str(node.getClass().getName()).removeprefix(CATALYST)
    if kind in ("AttributeReference", "GetStructField"):
        return leaf(node)
    if kind == "Alias":
        return translated(node.child(), leaf)
    if kind == "With":
        return translated(node.child(), _with_common(node, leaf))
    rule = _RULES.get(kind)
    if rule is None and _is_replaceable(node):
        return translated(node.replacement(), leaf)
    if rule is None:
        return leaf(node)
    children = list(items(node.children()))
    try:
        for child in children:
            kind_of(child)
        return rule(node, [translated(child, leaf) for child in children])
    except _OtherwiseError as error:
        raise UntranslatableError(shown(node)) from error


def _with_common(node: Any, leaf: Leaf) -> Leaf:
    """A leaf that knows the expressions, too, that Spark computes once for several others, as that of BETWEEN."""
    common = {one.id().id(): translated(one.child(), leaf) for one in items(node.defs())}

    def known(inner: Any) -> Expression:
        if str(inner.getClass().getSimpleName()) == "CommonExpressionRef" and inner.id().id() in common:
            return common[inner.id().id()]
        return leaf(inner)

    return known


class _OtherwiseError(Exception):
    """Of these types, or with these options, an expression is not the same here."""


def _is_replaceable(node: Any) -> bool:
    """Whether Spark itself puts another expression in its place."""
    kind: Any = node.getClass()
    while kind is not None:
        if any(str(one.getName()) == f"{CATALYST}RuntimeReplaceable" for one in kind.getInterfaces()):
            return True
        kind = kind.getSuperclass()
    return False


def items(sequence: Any) -> Iterator[Any]:
    """Those of a sequence of Scala's."""
    return (sequence.apply(i) for i in range(sequence.size()))


def shown(node: Any) -> str:
    """A node or an expression as Spark writes it, shortened."""
    text = str(node.toString()).strip().splitlines()[0]
    return text if len(text) <= 120 else text[:117] + "..."


def kind_of(node: Any) -> pa.DataType:
    """The type of an expression's values; text of other collations, and what is not plain, is not the same here."""
    spark = T._parse_datatype_json_string(node.dataType().json())
    plain = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType, T.NullType)
    if isinstance(spark, plain) or (type(spark) is T.StringType and spark.collation == "UTF8_BINARY"):
        return arrow_schema(T.StructType().add("v", spark)).field("v").type
    raise _OtherwiseError


def _require(condition: bool) -> None:
    if not condition:
        raise _OtherwiseError


Rule = Callable[[Any, list[Expression]], Expression]


def _mode(node: Any) -> str:
    """What becomes of values that overflow."""
    return {"ANSI": RAISE, "TRY": NULL, "LEGACY": WRAP}[str(node.evalMode().toString())]


def _plain(operation: Any, *options: Any, order: str = "left", of: Callable[[pa.DataType], bool] | None = None) -> Rule:
    """An operation that is never wrong; `of` says of which types it is the same."""

    def rule(node: Any, inputs: list[Expression]) -> Expression:
        _require(all(of is None or of(one.kind) for one in inputs))
        return Call(operation, tuple(inputs), kind_of(node), options, order=order)

    return rule


def _arithmetic(operation: Any) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        kind, kinds = kind_of(node), [one.kind for one in inputs]
        if pa.types.is_decimal(kind):
            _require(kind == _exact(operation, *kinds))
        else:
            _require(all(one == kind for one in kinds) and _is_number(kind))
        return Call(operation, tuple(inputs), kind, (), _mode(node), _OVERFLOW)

    return rule


def _exact(operation: Any, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The decimals that hold each result, whatever the values are; None where there are none."""
    if not (pa.types.is_decimal(left) and pa.types.is_decimal(right)):
        return None
    if operation is op.multiplied:
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _divide(operation: Any) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        kind = kind_of(node)
        _require(all(one.kind == kind for one in inputs) and _is_number(kind))
        on_wrong = RAISE if _mode(node) == RAISE else NULL
        return Call(operation, tuple(inputs), kind, (), on_wrong, _BY_ZERO, order="right")

    return rule


def _signed(operation: Any) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        kind = kind_of(node)
        _require(_is_number(kind) or pa.types.is_decimal(kind))
        return Call(operation, tuple(inputs), kind, (), RAISE if node.failOnError() else WRAP, _OVERFLOW)

    return rule


def _is_in(node: Any, inputs: list[Expression]) -> Expression:
    value, *listed = inputs
    _require(all(isinstance(one, Constant) and one.kind == value.kind for one in listed))
    known = [one.scalar for one in listed if isinstance(one, Constant)]
    values = pa.array([one.as_py() for one in known if one.is_valid], value.kind)
    return Call(op.is_one_of, (value,), pa.bool_(), (values, any(not one.is_valid for one in known)))


def _literal(node: Any, inputs: list[Expression]) -> Expression:
    return _constant(node.value(), kind_of(node))


def _constant(value: Any, kind: pa.DataType) -> Constant:
    """A value as Spark holds it."""
    if value is None:
        return Constant(pa.scalar(None, kind))
    if pa.types.is_string(kind):
        return Constant(pa.scalar(str(value.toString()), kind))
    if pa.types.is_decimal(kind):
        return Constant(pa.scalar(Decimal(str(value.toString())), kind))
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return Constant(pa.scalar(value, number).cast(kind))
    return Constant(pa.scalar(bytes(value) if pa.types.is_binary(kind) else value, kind))


def _cast(node: Any, inputs: list[Expression]) -> Expression:
    (value,) = inputs
    source, kind = value.kind, kind_of(node)
    if source == kind:
        return value
    if isinstance(value, Constant):
        with suppress(Py4JError, PySparkException):  # an attribute is constant too, and Spark cannot look into it
            return _constant(node.eval(None), kind)
    for fits, operation, why in _CASTS:
        if fits(source, kind):
            mode = _mode(node)
            _require(mode != WRAP or operation is not op.truncated)
            if pa.types.is_timestamp(source):
                _require((source.tz is None and getattr(kind, "tz", None) is None) or _is_utc(node))
            return Call(operation, (value,), kind, (), RAISE if why == _NO_TEXT else mode, why)
    raise _OtherwiseError


def _is_utc(node: Any) -> bool:
    zone = node.timeZoneId()
    return bool(zone.isDefined() and str(zone.get()) in _UTC)


def _widens(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast keeps every value, or takes the nearest double."""
    if pa.types.is_integer(source):
        if pa.types.is_decimal(kind):
            return bool(kind.precision - kind.scale >= _DIGITS[source.bit_width])
        wider = pa.types.is_integer(kind) and kind.bit_width > source.bit_width
        return bool(wider or pa.types.is_floating(kind) or pa.types.is_string(kind))
    if pa.types.is_decimal(source) and pa.types.is_decimal(kind):
        more = kind.precision - kind.scale >= source.precision - source.scale
        return bool(more and kind.scale >= source.scale)
    if pa.types.is_boolean(source):
        return _is_number(kind) or pa.types.is_string(kind)
    is_time = pa.types.is_timestamp(source) and pa.types.is_timestamp(kind)
    return bool(is_time or (pa.types.is_floating(source) and pa.types.is_floating(kind)))


_CASTS: tuple[tuple[Callable[[pa.DataType, pa.DataType], bool], Any, str], ...] = (
    (lambda source, kind: bool(pa.types.is_null(source)), op.nulls, ""),
    (_widens, op.cast, ""),
    (lambda source, kind: bool(pa.types.is_integer(source) and pa.types.is_integer(kind)), op.narrowed, _NO_FIT),
    (lambda source, kind: bool(pa.types.is_floating(source) and pa.types.is_integer(kind)), op.truncated, _NO_FIT),
    (lambda source, kind: bool(pa.types.is_integer(source) and pa.types.is_boolean(kind)), op.is_not_zero, ""),
    (lambda source, kind: bool(pa.types.is_binary(source) and pa.types.is_string(kind)), op.decoded, _NO_TEXT),
    (lambda source, kind: bool(pa.types.is_string(source) and pa.types.is_binary(kind)), op.cast, ""),
    (lambda source, kind: bool(pa.types.is_timestamp(source) and pa.types.is_date32(kind)), op.days, ""),
)
"""(whether it is of these types, the operation, what is told of wrong values)."""


def _found(operation: Any, check: Callable[[Any, str], bool] = lambda node, text: True) -> Rule:
    """A search for a text that is a literal."""

    def rule(node: Any, inputs: list[Expression]) -> Expression:
        value, wanted = inputs
        _require(isinstance(wanted, Constant) and wanted.scalar.is_valid and pa.types.is_string(value.kind))
        assert isinstance(wanted, Constant)
        text = wanted.scalar.as_py()
        _require(pa.types.is_string(wanted.kind) and check(node, text))
        return Call(operation, (value,), pa.bool_(), (text,))

    return rule


def _substring(node: Any, inputs: list[Expression]) -> Expression:
    value, *bounds = inputs
    _require(pa.types.is_string(value.kind) and all(isinstance(one, Constant) for one in bounds))
    first, many = (one.scalar.as_py() for one in bounds if isinstance(one, Constant))
    _require(first is not None and many is not None and first >= 0)
    start = max(first - 1, 0)
    return Call(op.part_of, (value,), pa.string(), (start, min(start + max(many, 0), _LARGEST_INT)))


def _trimmed(where: str) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        _require(len(inputs) == 1 and pa.types.is_string(inputs[0].kind))
        return Call(op.trimmed, tuple(inputs), pa.string(), (where,))

    return rule


def _time_part(part: str) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        kind = inputs[0].kind
        _require(pa.types.is_timestamp(kind) and (kind.tz is None or _is_utc(node)))
        return Call(op.part_of_time, tuple(inputs), kind_of(node), (part,))

    return rule


def _as_time(micros: int) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        _require(pa.types.is_integer(inputs[0].kind))
        return Call(op.as_time, tuple(inputs), kind_of(node), (micros,), RAISE, _OVERFLOW)

    return rule


def _choice(node: Any, inputs: list[Expression]) -> Expression:
    kind = kind_of(node)
    whole = inputs if len(inputs) % 2 else [*inputs, Constant(pa.scalar(None, kind))]
    _require(all(one.kind == kind for one in [*whole[1::2], whole[-1]]))
    return Choice(tuple(whole), kind)


def _first(node: Any, inputs: list[Expression]) -> Expression:
    _require(all(one.kind == inputs[0].kind for one in inputs))
    return First(tuple(inputs), inputs[0].kind)


def _compared(operation: Any, *options: Any) -> Rule:
    def rule(node: Any, inputs: list[Expression]) -> Expression:
        left, right = inputs
        _require(left.kind == right.kind and not pa.types.is_null(left.kind))
        order = "all" if operation is op.equal_or_both_null else "left"
        return Call(operation, (left, right), pa.bool_(), options, order=order)

    return rule


_is_text = pa.types.is_string
_RULES: Mapping[str, Rule] = {
    "Literal": _literal,
    "Cast": _cast,
    "Add": _arithmetic(op.added),
    "Subtract": _arithmetic(op.subtracted),
    "Multiply": _arithmetic(op.multiplied),
    "Divide": _divide(op.divided),
    "Remainder": _divide(op.remainder),
    "UnaryMinus": _signed(op.negated),
    "Abs": _signed(op.absolute),
    "EqualTo": _compared(op.equal),
    "EqualNullSafe": _compared(op.equal_or_both_null),
    "LessThan": _compared(op.less, False, False),
    "GreaterThan": _compared(op.less, True, False),
    "GreaterThanOrEqual": _compared(op.less, False, True),
    "LessThanOrEqual": _compared(op.less, True, True),
    "And": lambda node, inputs: Logical(tuple(inputs), is_and=True),
    "Or": lambda node, inputs: Logical(tuple(inputs), is_and=False),
    "Not": _plain(op.inverted),
    "IsNull": _plain(op.is_null, True),
    "IsNotNull": _plain(op.is_null, False),
    "IsNaN": _plain(op.is_nan),
    "In": _is_in,
    "Coalesce": _first,
    "CaseWhen": _choice,
    "If": _choice,
    "StartsWith": _found(op.begins),
    "EndsWith": _found(op.ends),
    "Contains": _found(op.contains),
    "Like": _found(op.like, lambda node, text: "\\" not in text and str(node.escapeChar()) not in text),
    "Length": _plain(op.length),
    "StringTrim": _trimmed("both"),
    "StringTrimLeft": _trimmed("left"),
    "StringTrimRight": _trimmed("right"),
    "Concat": _plain(op.joined, order="all", of=lambda kind: bool(_is_text(kind))),
    "Substring": _substring,
    "Year": _plain(op.part_of_date, "year"),
    "Month": _plain(op.part_of_date, "month"),
    "DayOfMonth": _plain(op.part_of_date, "day"),
    "Hour": _time_part("hour"),
    "Minute": _time_part("minute"),
    "Second": _time_part("second"),
    "SecondsToTimestamp": _as_time(1_000_000),
    "MillisToTimestamp": _as_time(1_000),
    "MicrosToTimestamp": _as_time(1),
}
