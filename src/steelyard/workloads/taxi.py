"""Taxi trips with the fields of the DEBS 2015 challenge, in the order of their drop-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.workloads.draws import Bits, Draws, mixed, quantile_table
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT, MICROS

MAX_MEDALLIONS = 1_000_000
DRIVERS_PER_TAXI = 2

# Fares of New York in 2013, in dollars.
FLAG_FALL, PER_MILE, PER_MINUTE = 2.50, 2.50, 0.12
MTA_TAX, BRIDGE_TOLL = 0.50, 5.33
NIGHT_SURCHARGE, RUSH_SURCHARGE = 0.50, 1.00
TOLL_SHARE, CARD_SHARE = 0.05, 0.54
PAYMENT_TYPES = ("CSH", "CRD")

_NORMAL = NormalDist()
TRIP_SECONDS = quantile_table(lambda p: exp(log(600) + 0.6 * _NORMAL.inv_cdf(p)))
"""Median 10 minutes, 1 in 20 above 27."""
MILES_PER_HOUR = quantile_table(lambda p: exp(log(11) + 0.35 * _NORMAL.inv_cdf(p)))
TIP_SHARE = quantile_table(lambda p: max(0.0, _NORMAL.inv_cdf(p) * 0.06 + 0.18))
DEGREES = quantile_table(lambda p: 0.02 * _NORMAL.inv_cdf(p))
"""How far from the middle of Manhattan a trip starts or ends."""
MIDTOWN_LONGITUDE, MIDTOWN_LATITUDE = -73.98, 40.75

MONEY = ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount", "total_amount")


@dataclass(frozen=True)
class Taxi(Workload):
    """One trip a row; the event time is its drop-off, and `total_amount` is the sum of the five before it.

    The columns are those of the challenge, with `pickup_time` and `dropoff_time` for its `pickup_datetime`
    and `dropoff_datetime`. Trips are drawn one by one, so a taxi may be on two trips at once.

    Parameters
    ----------
    medallions
        Number of taxis, up to 10^6. New York has about 13,000.
    exponent
        Skew of trips over taxis, 0 to 4. At 0.2 the busiest taxi has about five times the mean.
    seed
        Chooses the trips.

    Examples
    --------
    >>> trip = Taxi(seed=1).rows(0, 1, np.zeros(1)).to_pylist()[0]
    >>> trip["medallion"], trip["trip_time_in_secs"], trip["trip_distance"], trip["total_amount"]
    ('06BD4FEC97FE60A7C3B99ED74AD96958', 958, 4.11, 15.69)
    """

    medallions: int = 13_000
    exponent: float = 0.2
    seed: int = 0

    name: ClassVar[str] = "taxi"
    event_time: ClassVar[str] = "dropoff_time"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("medallion", pa.string()),
            ("hack_license", pa.string()),
            ("pickup_time", TIMESTAMP),
            ("dropoff_time", TIMESTAMP),
            ("trip_time_in_secs", pa.int32()),
            ("trip_distance", pa.float64()),
            ("pickup_longitude", pa.float64()),
            ("pickup_latitude", pa.float64()),
            ("dropoff_longitude", pa.float64()),
            ("dropoff_latitude", pa.float64()),
            ("payment_type", pa.string()),
            *((amount, pa.float64()) for amount in MONEY),
        ]
    )

    def __post_init__(self) -> None:
        require_within("medallions", self.medallions, 1, MAX_MEDALLIONS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        taxi = rank_table(self.exponent, self.medallions).ranks(draws.uniform("medallion"))
        driver = taxi * DRIVERS_PER_TAXI + draws.integers("driver", DRIVERS_PER_TAXI)
        seconds = draws.distributed("seconds", TRIP_SECONDS).astype(np.int64)
        pickup = times - seconds * MICROS
        miles = _to_hundredths(draws.distributed("speed", MILES_PER_HOUR) * seconds / 3600)
        card = draws.happens("card", CARD_SHARE)
        places = [
            np.round(middle + draws.distributed(place, DEGREES), 6)
            for place, middle in (
                ("pickup_longitude", MIDTOWN_LONGITUDE),
                ("pickup_latitude", MIDTOWN_LATITUDE),
                ("dropoff_longitude", MIDTOWN_LONGITUDE),
                ("dropoff_latitude", MIDTOWN_LATITUDE),
            )
        ]
        return [
            _plates("medallion", self.medallions).take(pa.array(taxi)),
            _plates("hack_license", self.medallions * DRIVERS_PER_TAXI).take(pa.array(driver)),
            pickup,
            times,
            seconds.astype(np.int32),
            miles,
            *places,
            pa.array(PAYMENT_TYPES).take(pa.array(card.astype(np.int8))),
            *_amounts(draws, pickup, seconds, miles, card),
        ]


def _amounts(
    draws: Draws, pickup: Ints, seconds: Ints, miles: Floats, card: np.ndarray[Any, np.dtype[np.bool_]]
) -> list[Floats]:
    """The six columns of `MONEY`, in dollars and whole cents. Tips are known only where a card paid."""
    fare = _to_hundredths(FLAG_FALL + PER_MILE * miles + PER_MINUTE * (seconds / 60))
    hour = pickup // (3600 * MICROS) % 24
    night = (hour >= 20) | (hour < 6)
    rush = (hour >= 16) & (hour < 20)
    surcharge = night * NIGHT_SURCHARGE + rush * RUSH_SURCHARGE
    tax = np.full(len(fare), MTA_TAX)
    tip = np.where(card, _to_hundredths(fare * draws.distributed("tip", TIP_SHARE)), 0.0)
    tolls = draws.happens("toll", TOLL_SHARE) * BRIDGE_TOLL
    return [fare, surcharge, tax, tip, tolls, _to_hundredths(fare + surcharge + tax + tip + tolls)]


def _to_hundredths(amount: Floats) -> Floats:
    return np.asarray(np.rint(amount * 100) / 100)


@lru_cache(maxsize=8)
def _plates(kind: str, count: int) -> pa.Array:
    """`count` different names of 32 hexadecimal digits, as the challenge hides the real ones."""
    numbers = np.arange(count, dtype=np.uint64)
    origin = np.uint64(len(kind))
    # The first half alone is a bijection of the number, so no two names are the same.
    halves = (mixed(numbers + origin + np.uint64(1)), mixed(~numbers - origin))
    return pa.array([f"{a:016X}{b:016X}" for a, b in zip(*(half.tolist() for half in halves), strict=True)])
