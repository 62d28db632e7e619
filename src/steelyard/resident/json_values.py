"""One JSON document, as Spark's parser takes it: for those that Arrow's reader, which is fast and strict, refuses."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa

from steelyard.resident.times import date_of, time_of

Fields = dict[str, pa.DataType]
Row = dict[str, Any]

_NOT_ONE = object()
"""What a value is that does not fit its column: the column keeps what it had, null at first."""


class _Number(str):
    """A number with a fraction or an exponent, as it was written."""


class _Object(list[tuple[str, Any]]):
    """The fields of an object, in their order, and twice where they are."""


@dataclass(frozen=True)
class _Value:
    """A field of a document: its value, and how it was written."""

    value: Any
    written: str


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_float=_Number, parse_constant=_Number)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'((?:[^\'\\]|\\.)*)\'|[+-]INF\b|\+Infinity\b', re.DOTALL)
_ENDLESS = {"+INF": "Infinity", "-INF": "-Infinity", "+Infinity": "Infinity"}
BASE64 = r"(?:[ \t\r\n]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=))*[ \t\r\n]*"
"""Bytes as Spark reads them from text, with blanks between groups of four."""
_CUT = r"(?:[A-Za-z0-9+/]|[A-Za-z0-9+/]{2}=)"
_SPACE = re.compile(r"[ \t\r\n]*")


def rows_of(document: bytes | None, fields: Fields, zone: str) -> list[Row]:
    """The rows of a line of a file: one, or one for each object of an array; a row of nulls where it is no document.

    Spark copies what is no string into a column of strings as it was written.

    >>> rows_of(b"[{'k': 1.50, 'n': 'x'}, {}] and more", {"k": pa.string(), "n": pa.int64()}, "UTC")
    [{'k': '1.50', 'n': None}, {'k': None, 'n': None}]
    """
    found = _parsed((document or b"").removeprefix(b"\xef\xbb\xbf"))
    if isinstance(found, list) and not isinstance(found, _Object):
        objects = [one.value for one in found]
        if all(isinstance(one, _Object) or one is None for one in objects):
            return [_row(_parsed(one.written.encode()), fields, zone, as_written=True) for one in found]
    return [_row(found, fields, zone, as_written=True)]


def row_of(document: bytes | None, fields: Fields, zone: str) -> Row:
    """The row of a document, as from_json has it: an array is none, and what is no string is written anew."""
    text = (document or b"").decode("utf-8", "replace")
    return _row(_parsed(text.encode()), fields, zone, as_written=False)


def _parsed(document: bytes) -> Any:
    """The first value of a text, an object or an array with how its parts are written; None where there is none."""
    try:
        text = document.decode().lstrip(" \t\r\n")
        try:
            return _parts(text)
        except ValueError:
            return _parts(_TOKEN.sub(_strict, text))  # Spark takes single quotes, and +INF
    except (ValueError, RecursionError):
        return None


def _parts(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return _DECODER.raw_decode(text)[0]
    is_object, at = text[0] == "{", _after_space(text, 1)
    found: Any = _Object() if is_object else []
    closing = "}" if is_object else "]"
    while text[at : at + 1] != closing or found:
        if is_object:
            if text[at : at + 1] != '"':
                raise ValueError("a field has no name")
            name, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                raise ValueError("a field has no value")
            at = _after_space(text, at + 1)
        value, end = _DECODER.raw_decode(text, at)
        part = _Value(value, text[at:end])
        found.append((name, part) if is_object else part)
        at = _after_space(text, end)
        if text[at : at + 1] == closing:
            break
        if text[at : at + 1] != ",":
            raise ValueError("a document has no end")
        at = _after_space(text, at + 1)
    return found


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _strict(token: re.Match[str]) -> str:
    if token[1] is None:
        return _ENDLESS.get(token[0], token[0])
    return '"' + token[1].replace("\\'", "'").replace('"', '\\"') + '"'


def _row(document: Any, fields: Fields, zone: str, as_written: bool) -> Row:
    try:
        return _fields(document, fields, zone, as_written)
    except ValueError:
        return dict.fromkeys(fields)


def _fields(document: Any, fields: Fields, zone: str, as_written: bool) -> Row:
    row: Row = dict.fromkeys(fields)
    for name, one in document if isinstance(document, _Object) else ():
        if name in fields:
            if one.value is None:
                found = None
            elif as_written and pa.types.is_string(fields[name]) and one.written[0] != '"':
                found = one.written
            else:
                found = _typed(one.value, fields[name], zone)
            if found is not _NOT_ONE:
                row[name] = found
    return row


def _typed(value: Any, kind: pa.DataType, zone: str) -> Any:
    """A value as one of a column's type: times and dates as numbers, and `_NOT_ONE` where it is not of that type."""
    for is_kind, read in _READERS:
        if is_kind(kind):
            return read(value, kind, zone)
    raise NotImplementedError(f"JSON of type {kind}")


def _whole(value: Any, kind: pa.DataType, zone: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        return _NOT_ONE
    if kind.bit_width == 8 and 128 <= value < 256:
        return value - 256  # as Jackson has it, which Spark reads with
    half = 1 << kind.bit_width - 1
    return value if -half <= value < half else _NOT_ONE


def _floating(value: Any, kind: pa.DataType, zone: str) -> Any:
    if isinstance(value, _Number) or (isinstance(value, int) and not isinstance(value, bool)):
        return float(value)
    named = {**_ENDLESS, "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}
    return float(named[value]) if isinstance(value, str) and value in named else _NOT_ONE


def _decimal(value: Any, kind: pa.DataType, zone: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return _NOT_ONE
    text = str(value) if isinstance(value, int | _Number) else value.replace(",", "")
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return _NOT_ONE
    with localcontext(prec=500):
        try:
            found = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        except InvalidOperation:
            return _NOT_ONE
        return found if len(found.as_tuple().digits) <= kind.precision else _NOT_ONE


def _text(value: Any, kind: pa.DataType, zone: str) -> Any:
    plain = isinstance(value, str) and not isinstance(value, _Number)
    return value.encode("utf-8", "replace").decode() if plain else "".join(_written(value))


def _written(value: Any) -> Iterator[str]:
    """A value as Spark writes it into a string."""
    if isinstance(value, _Number):
        yield _java_double(float(value))
    elif isinstance(value, _Object):
        yield "{" + ",".join(f"{_quoted(name)}:{''.join(_written(one))}" for name, one in value) + "}"
    elif isinstance(value, list):
        yield "[" + ",".join("".join(_written(one)) for one in value) + "]"
    else:
        yield _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _java_double(value: float) -> str:
    if not math.isfinite(value):
        return '"' + {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)] + '"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "e" in repr(value) else repr(value)
    digits, _, power = f"{Decimal(repr(value)):E}".partition("E")
    whole, _, rest = digits.partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}E{int(power)}"


def _boolean(value: Any, kind: pa.DataType, zone: str) -> Any:
    return value if isinstance(value, bool) else _NOT_ONE


def _date(value: Any, kind: pa.DataType, zone: str) -> Any:
    found = date_of(value) if isinstance(value, str) and not isinstance(value, _Number) else None
    return _NOT_ONE if found is None else found


def _time(value: Any, kind: pa.DataType, zone: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and kind.tz is not None:
        half = 1 << 63
        return (value * 1_000_000 + half) % (2 * half) - half if -half <= value < half else _NOT_ONE  # Spark wraps
    if not isinstance(value, str) or isinstance(value, _Number):
        return _NOT_ONE
    found = time_of(value, None if kind.tz is None else zone)
    return _NOT_ONE if found is None else found


def _bytes(value: Any, kind: pa.DataType, zone: str) -> Any:
    if not isinstance(value, str) or isinstance(value, _Number):
        return _NOT_ONE
    if re.fullmatch(f"(?:{BASE64}){_CUT}", value, re.ASCII):
        raise ValueError("base64 that is cut off ends the document for Spark")
    return base64.b64decode(value) if re.fullmatch(BASE64, value, re.ASCII) else _NOT_ONE


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, str], Any]], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _floating),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date32, _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_binary, _bytes),
)


def readable(kind: pa.DataType) -> bool:
    """Whether values of a type can be read from JSON here."""
    return any(is_kind(kind) for is_kind, _ in _READERS)
