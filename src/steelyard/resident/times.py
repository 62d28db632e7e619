"""Text as dates and times, as Spark reads it: in whole columns where it is ISO 8601, value by value where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError

_DAY = 86_400_000_000
_BLANK = "".join(map(chr, [*range(33), 127]))
"""What Spark leaves out around a text."""
_FIRST_DAY = date(1970, 1, 1).toordinal()
_LOCAL = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d{1,6})?)?$"
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)$"
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_TIME = re.compile(
    r"(?:([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?=$|[ T]))?)?)?(?:(^T?|(?<=\d)[ T])"
    r"(\d{1,2})(?:(:)(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?)?",
    re.DOTALL | re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2}))?(?::?(\d{2}))?", re.ASCII)
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's short names of zones."""


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The time zone that Spark means by a name; OptionError where there is none.

    >>> zone_of("GMT+2"), zone_of("PST")
    (datetime.timezone(datetime.timedelta(seconds=7200)), zoneinfo.ZoneInfo(key='America/Los_Angeles'))
    """
    name = _SHORT.get(name.strip(), name.strip())
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    found = _OFFSET.fullmatch(name)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and away <= timedelta(hours=18):
            return timezone(away if found[1] == "+" else -away)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise OptionError(f"there is no time zone {name!r}: give one such as 'Europe/Paris' or '+02:00'") from error


def instants(local: pa.Array, zone: str) -> pa.Array:
    """Local times as instants, as Java has them: of an hour that comes twice the first, of one that is left out later.

    >>> gap = pa.array([datetime(2024, 3, 10, 2, 30)], pa.timestamp("us"))
    >>> str(instants(gap, "America/New_York")[0])
    '2024-03-10 07:30:00+00:00'
    """
    known = zone_of(zone)
    name = known.key if isinstance(known, ZoneInfo) else "UTC"
    guess = pc.assume_timezone(local, name, ambiguous="earliest", nonexistent="earliest")
    # A time that was left out is guessed at the moment before the clocks change: by the offset of then, it is later.
    offset = pc.subtract(pc.local_timestamp(guess), guess.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")))
    if not isinstance(known, ZoneInfo):
        offset = pc.add(offset, pa.scalar(known.utcoffset(None), pa.duration("us")))
    return pc.subtract(local, offset).cast(pa.timestamp("us", "UTC"))


def times(text: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Text as timestamps, null where it is none; those that say no zone are of `zone`."""
    short = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")  # Spark cuts nanoseconds off
    zoned, local = _matching(short, _ZONED), _matching(short, _LOCAL)
    naive = _cast(local, pa.timestamp("us"))
    if kind.tz is None:
        found = naive
    else:
        found = pc.coalesce(_cast(zoned, pa.timestamp("us", "UTC")), instants(naive, zone)).cast(kind)
    return _mended(found, text, lambda value: time_of(value, zone if kind.tz is not None else None))


def dates(text: pa.Array) -> pa.Array:
    """Text as dates, null where it is none."""
    found = _cast(_matching(text, r"^\d{4}-\d\d-\d\d$"), pa.date32())
    return _mended(found, text, date_of)


def time_of(text: str, zone: str | None) -> int | None:
    """Microseconds since 1970 of what Spark takes for a time, None where it takes none; without a zone, of local times.

    >>> time_of("2024-5-1 12:00:00 Europe/Paris", "UTC"), time_of("2024-05-01T12:00Z", "UTC")
    (1714557600000000, None)
    """
    found = _TIME.fullmatch(text.strip(_BLANK))
    if found is None or not found[0]:
        return None
    year, month, day, mark, hour, colon, minute, second, fraction, rest = found.groups()
    if (rest and zone is None) or (hour and not day and (year or not (colon or mark) or zone is None)):
        return None
    try:
        where = zone_of(rest or zone or "UTC")
    except OptionError:
        return None
    today = datetime.now(where).date()
    days = _days(int(year), int(month or 1), int(day or 1)) if year else today.toordinal() - _FIRST_DAY
    clock = [int(part or 0) for part in (hour, minute, second)]
    if days is None or clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    local = days * _DAY + ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000 + micros
    at = local - _offset(local, int(year or today.year), where)
    return at if -(1 << 63) <= at < 1 << 63 else None


def date_of(text: str) -> int | None:
    """Days since 1970 of what Spark takes for a date, None where it takes none; a bare number is such days.

    >>> date_of("2024-05-01 12:00"), date_of("2024-02-30"), date_of("20240501")
    (19844, None, 20240501)
    """
    found = _DATE.fullmatch(text.strip(_BLANK))
    if found is not None:
        days = _days(int(found[1]), int(found[2] or 1), int(found[3] or 1))
        if days is not None and -(1 << 31) <= days < 1 << 31:
            return days
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)
    return None


def _days(year: int, month: int, day: int) -> int | None:
    """Of a date of any year; None where there is no such day."""
    cycles = year // 400 - 5  # the calendar comes again every 400 years
    try:
        return date(year - cycles * 400, month, day).toordinal() - _FIRST_DAY + cycles * 146_097
    except ValueError:
        return None


def _offset(local: int, year: int, zone: tzinfo) -> int:
    """Microseconds that a zone is ahead of UTC at a local time; of a year that Python has not, as 400 years off."""
    near = year if 1 < year < 9999 else (9500 if year > 1 else 400) + year % 400
    moved = local - (year - near) // 400 * 146_097 * _DAY
    away = (datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=moved)).utcoffset()
    return round((away or timedelta()) / timedelta(microseconds=1))


def _matching(text: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, pa.string()))


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text as times; null where it is none."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, kind)
    middle = len(text) // 2
    return pa.concat_arrays([_cast(text[:middle], kind), _cast(text[middle:], kind)])


def _mended(found: pa.Array, text: pa.Array, read: Callable[[str], int | None]) -> pa.Array:
    """What was found, and where nothing was, what `read` makes of the text: days or microseconds."""
    odd = pc.and_(pc.is_null(found), pc.is_valid(text))
    if not odd.true_count:
        return found
    wide = pa.int32() if pa.types.is_date32(found.type) else pa.int64()
    values = [read(value) for value in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(found, odd, pa.array(values, wide).cast(found.type))
