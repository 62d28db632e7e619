"""Streams that are made, not found: seeded, fast, and the same from any row on. Nothing here needs Spark."""

from steelyard.workloads.arrivals import Arrivals
from steelyard.workloads.cluster import Cluster
from steelyard.workloads.lineitem import LineItem
from steelyard.workloads.links import Links
from steelyard.workloads.logs import Logs
from steelyard.workloads.near_duplicates import NearDuplicates
from steelyard.workloads.nexmark import Nexmark
from steelyard.workloads.rates import RATES, Constant, Ramp, Random, Rate, Sinusoid, Spike, Steps, Walk, parse_rate
from steelyard.workloads.registry import WORKLOADS, as_type, parameter_types, workload
from steelyard.workloads.taxi import Taxi
from steelyard.workloads.tweets import Tweets
from steelyard.workloads.vectors import Vectors
from steelyard.workloads.vehicles import SpeedQueries, Vehicles
from steelyard.workloads.words import Words
from steelyard.workloads.workload import Workload
from steelyard.workloads.zipf import Zipf

__all__ = [
    "RATES",
    "WORKLOADS",
    "Arrivals",
    "Cluster",
    "Constant",
    "LineItem",
    "Links",
    "Logs",
    "NearDuplicates",
    "Nexmark",
    "Ramp",
    "Random",
    "Rate",
    "Sinusoid",
    "SpeedQueries",
    "Spike",
    "Steps",
    "Taxi",
    "Tweets",
    "Vectors",
    "Vehicles",
    "Walk",
    "Words",
    "Workload",
    "Zipf",
    "as_type",
    "parameter_types",
    "parse_rate",
    "workload",
]
