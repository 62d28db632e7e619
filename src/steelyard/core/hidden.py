"""Columns that engines add to a user's rows, and to what they make of them. No column of a user's may begin so."""

from __future__ import annotations

RESERVED = "__"
"""How each of them begins."""
BAD, BAD_ROW = "__bad", "__bad_row"
"""Of a row that cannot be processed, whose own columns are null: why, and the row as JSON."""
MICROS, LATE = "__us", "__late"
"""Event time in microseconds, and whether it is behind the watermark."""
PANE, START = "__pane", "__start"
"""The start of the pane that a row or a partial belongs to, and of a window."""
FIRST, LAST = "__first", "__last"
"""Of partials of sessions: the times of the first and of the last row."""
NEW = "__new"
"""Marks partials that came with the newest batch, where older ones of the same keys stand beside them."""
ROWS = "__rows"
"""How many rows a partial was made of."""
ROW, AT = "__row", "__at"
"""Where a row stands in its source's partition, and in its block."""
BLOCK, BUCKET, PARCEL = "__block", "__bucket", "__parcel"
"""The map task and the reduce task that something goes to, and what goes to the latter as bytes."""
SPLIT, TURN = "__split", "__turn"
"""Whether a key is in several blocks; the number of a key that is in one alone, by which buckets are dealt out."""
KEY, HOME, SLOT_BLOCKS = "__key", "__home", "__slots"
"""Of the table of a plan: the columns of the key begin so; its block, and blocks by slot where it is cut."""
ITEM = "__item"
"""What costs depend on, as a 64-bit hash."""
HASH = "__hash"
"""Of the key."""
NUMBER = "__number_"
"""Begins the name under which a column of text is read as a number."""
SIGN, STATE = "__sign", "__state"
"""Fields of a state that is to be added (sign 1) or taken away (sign -1)."""


def is_hidden(column: str) -> bool:
    """Whether a column is none of the user's."""
    return column.startswith(RESERVED)
