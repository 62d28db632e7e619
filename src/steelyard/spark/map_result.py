"""What a user's map function gave, as its schema says; what cannot be that is a mistake of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from steelyard.core.arrow import in_one_batch
from steelyard.core.errors import BatchError, kind_of, nearest
from steelyard.spark.isolate import UnfitError
from steelyard.spark.program import MapFunction

_FRAME = ("pandas", "DataFrame")
_OF_FRAMES = ("apply", "assign", "copy", "fillna", "groupby", "iloc", "index", "iterrows", "itertuples", "loc", "query")
"""What pandas frames have, and Arrow batches have not."""
_WANTED = {"arrow": "a pyarrow.RecordBatch or Table", "pandas": "a pandas.DataFrame"}


def fitted(given: Any, function: MapFunction, wanted: pa.Schema) -> pa.RecordBatch:
    """The batch of these columns and types that a map function's result is.

    Raises
    ------
    UnfitError
        Where it is no batch, lacks a column, or has a value or a whole column that is not of the wanted type.
    """
    is_frame = any((one.__module__.partition(".")[0], one.__name__) == _FRAME for one in type(given).__mro__)
    is_arrow = isinstance(given, pa.RecordBatch | pa.Table)
    if not (is_frame if function.form == "pandas" else is_arrow):
        raise _mistake(function, f"gave {_shown(given)}; {_must(function, wanted)}{_hint(given, is_frame or is_arrow)}")
    names = list(given.columns) if is_frame else given.schema.names
    missing = [name for name in wanted.names if names.count(name) != 1]
    if missing:
        raise _mistake(function, _not_there(names, missing, wanted))
    if isinstance(given, pa.Table):
        remedy = "let the map function give less at once"
        given = in_one_batch(given.to_batches() or [pa.RecordBatch.from_pylist([], given.schema)], remedy)
    try:
        if is_frame:
            return pa.RecordBatch.from_pandas(given, schema=wanted, preserve_index=False)
        chosen = given.select(wanted.names)
        return chosen.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a value: of its row, unless all rows end in this
        must = ", ".join(f"{one.name} {one.type}" for one in wanted)
        raise _mistake(function, f"gave what its schema ({must}) does not say: {error}: mend one of them") from error
    except pa.ArrowNotImplementedError as error:  # there is no way from one of its types to the wanted one
        unfit = [one for one in chosen.schema if not _casts(one.type, wanted.field(one.name).type)]
        had = ", ".join(f"{one.name} {one.type}" for one in unfit or chosen.schema)
        must = ", ".join(f"{one.name} {wanted.field(one.name).type}" for one in unfit or chosen.schema)
        raise _mistake(function, f"gave {had}, and by its schema it gives {must}: mend one of them") from error


def _mistake(function: MapFunction, what: str) -> UnfitError:
    return UnfitError(f"map function {named(function)} {what}")


def as_frame_was_meant(function: MapFunction, part: pa.RecordBatch, error: Exception) -> BatchError | None:
    """What to say where a function took an Arrow batch for a pandas frame; None where it raised for another reason."""
    asked = getattr(error, "name", None) if getattr(error, "obj", None) is part else None
    frames = asked in _OF_FRAMES or asked in part.schema.names
    if not frames and not ("RecordBatch" in str(error) and "item assignment" in str(error)):
        return None
    return BatchError(
        f"map function {named(function)} was given a pyarrow.RecordBatch and uses it as a pandas.DataFrame ({error}): "
        "say .map(..., form='pandas')"
    )


def named(function: MapFunction) -> str:
    """A user's function by its name, and the file and line where it begins."""
    code = getattr(function.function, "__code__", None)
    where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
    return f"{getattr(function.function, '__name__', type(function.function).__name__)}{where}"


def _shown(given: Any) -> str:
    return "None" if given is None else kind_of(given)


def _must(function: MapFunction, wanted: pa.Schema) -> str:
    return f"it must give {_WANTED[function.form]} with the columns {', '.join(wanted.names)}"


def _hint(given: Any, is_other_form: bool) -> str:
    if is_other_form:
        form = "arrow" if isinstance(given, pa.RecordBatch | pa.Table) else "pandas"
        return f", or say .map(..., form={form!r})"
    return ": has it no return?" if given is None else ""


def _not_there(names: list[Any], missing: list[str], wanted: pa.Schema) -> str:
    first = missing[0]
    others = {str(name).lower(): str(name) for name in names if name not in wanted.names}
    near = others.get(first.lower()) or nearest(first, others.values())
    lacking = f"there is no {first!r}" if first not in names else f"{first!r} is there {names.count(first)} times"
    hint = f" (is it {near!r}?)" if near and first not in names else ""
    columns = ", ".join(map(str, names)) or "no columns"
    return (
        f"gave the columns {columns}, and by its schema it gives {', '.join(wanted.names)}: {lacking}{hint}. Mend the "
        "function, or the schema of .map(function, schema)"
    )


def _casts(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether any value of a type can be one of the wanted type."""
    try:
        pa.array([], kind).cast(wanted)
    except pa.ArrowNotImplementedError:
        return False
    return True
