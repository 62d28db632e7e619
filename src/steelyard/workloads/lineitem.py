"""TPC-H line items as a stream of recent orders; parts are as likely as in TPC-H, or skewed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.ranks import MAX_KEYS, rank_table
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT

PARTS_PER_SCALE, SUPPLIERS_PER_SCALE = 200_000, 10_000
MOST_LINES = 7
"""An order has 1 to 7 lines. Each group of 28 rows is seven orders with 1, 2 … 7 lines, in a drawn order."""
ROWS_PER_GROUP = MOST_LINES * (MOST_LINES + 1) // 2

_EPOCH = date(1970, 1, 1)
FIRST_ORDER = (date(1992, 1, 1) - _EPOCH).days
ORDER_DAYS = (date(1998, 12, 31) - date(1992, 1, 1)).days - 151 + 1
CURRENT_DATE = (date(1995, 6, 17) - _EPOCH).days
"""TPC-H's CURRENTDATE (section 4.2.2.12): what is shipped later is still open."""

RETURN_FLAGS = ("R", "A", "N")
LINE_STATES = ("F", "O")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")


def _arrangements(count: int = 64) -> tuple[Ints, Ints]:
    """int64[count, 28] each: the order within its group, and the line within its order, of every row."""
    orders = np.empty((count, ROWS_PER_GROUP), dtype=np.int64)
    lines = np.empty_like(orders)
    for i in range(count):
        ranks = Draws(0, np.arange(MOST_LINES, dtype=np.uint64) + np.uint64(i * MOST_LINES)).bits("lines")
        lengths = np.argsort(ranks) + 1
        orders[i] = np.repeat(np.arange(MOST_LINES), lengths)
        lines[i] = np.concatenate([np.arange(n) for n in lengths])
    return orders, lines


_ORDERS, _LINES = _arrangements()


@dataclass(frozen=True)
class LineItem(Workload):
    """One line of an order a row, all columns of TPC-H but `l_comment`, and the moment it arrives.

    The dates are those of TPC-H (1992 to 1998), so that the filters of its queries select what they should;
    `event_time` alone says when a line came. Amounts are doubles in place of decimals.

    Parameters
    ----------
    scale
        TPC-H scale factor: 200,000 parts and 10,000 suppliers for each 1.
    exponent
        Skew of `l_partkey`, 0 to 4. TPC-H has 0: all parts are alike.
    seed
        Chooses the lines.

    Examples
    --------
    >>> lines = LineItem(seed=1).rows(0, 4, np.zeros(4))
    >>> lines.select(["l_orderkey", "l_linenumber", "l_partkey", "l_quantity"]).to_pylist()[0]
    {'l_orderkey': 1, 'l_linenumber': 1, 'l_partkey': 109427, 'l_quantity': 10}
    """

    scale: float = 1.0
    exponent: float = 0.0
    seed: int = 0

    name: ClassVar[str] = "lineitem"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("event_time", TIMESTAMP),
            ("l_orderkey", pa.int64()),
            ("l_partkey", pa.int64()),
            ("l_suppkey", pa.int64()),
            ("l_linenumber", pa.int32()),
            ("l_quantity", pa.int64()),
            ("l_extendedprice", pa.float64()),
            ("l_discount", pa.float64()),
            ("l_tax", pa.float64()),
            ("l_returnflag", pa.string()),
            ("l_linestatus", pa.string()),
            ("l_shipdate", pa.date32()),
            ("l_commitdate", pa.date32()),
            ("l_receiptdate", pa.date32()),
            ("l_shipinstruct", pa.string()),
            ("l_shipmode", pa.string()),
        ]
    )

    def __post_init__(self) -> None:
        require_within("scale", self.scale, 1 / SUPPLIERS_PER_SCALE, MAX_KEYS / PARTS_PER_SCALE)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        parts = round(self.scale * PARTS_PER_SCALE)
        part = rank_table(self.exponent, parts).ranks(draws.uniform("part")) + 1
        order, line = _orders_and_lines(rows)
        quantity = 1 + draws.integers("quantity", 50)
        return [
            times,
            order,
            part,
            self._suppliers(part, draws.integers("supplier", 4)),
            line.astype(np.int32),
            quantity,
            quantity * _retail_price(part),
            draws.integers("discount", 11) / 100,
            draws.integers("tax", 9) / 100,
            *_flags_and_dates(draws, order),
            _chosen(INSTRUCTIONS, draws.integers("instruction", len(INSTRUCTIONS))),
            _chosen(MODES, draws.integers("mode", len(MODES))),
        ]

    def _suppliers(self, part: Ints, which: Ints) -> Ints:
        """TPC-H's formula: each part has four suppliers, spread over all of them."""
        suppliers = max(round(self.scale * SUPPLIERS_PER_SCALE), 1)
        return (part + which * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1


def _orders_and_lines(rows: Bits) -> tuple[Ints, Ints]:
    """int64[rows] each: number of the order, and of the line in it, both from 1."""
    number = rows.astype(np.int64)
    group, place = number // ROWS_PER_GROUP, number % ROWS_PER_GROUP
    arrangement = group % len(_ORDERS)
    return group * MOST_LINES + _ORDERS[arrangement, place] + 1, _LINES[arrangement, place] + 1


def _retail_price(part: Ints) -> Floats:
    """TPC-H's price of a part, in dollars: 901 to about 2,100."""
    return (90_000 + part // 10 % 20_001 + 100 * (part % 1_000)) / 100


def _flags_and_dates(draws: Draws, order: Ints) -> list[Column]:
    """Return flag, line status, and the days of shipping, commitment and receipt, as dbgen derives them."""
    ordered = FIRST_ORDER + Draws(draws.seed, order.astype(np.uint64)).integers("order date", ORDER_DAYS)
    shipped = ordered + 1 + draws.integers("ship", 121)
    committed = ordered + 30 + draws.integers("commit", 61)
    received = shipped + 1 + draws.integers("receipt", 30)
    flag = np.where(received <= CURRENT_DATE, draws.integers("returned", 2), 2)
    status = (shipped > CURRENT_DATE).astype(np.int64)
    return [
        _chosen(RETURN_FLAGS, flag),
        _chosen(LINE_STATES, status),
        *(pa.array(day.astype(np.int32)).cast(pa.date32()) for day in (shipped, committed, received)),
    ]


def _chosen(names: Sequence[str], which: Ints) -> pa.Array:
    return pa.array(names).take(pa.array(which))
