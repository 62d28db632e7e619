"""A cluster that is simulated: the library's own policies on machines that nobody has to own."""

from steelyard.core.picture import mermaid, svg
from steelyard.sim.control import Autoscaled, autoscale
from steelyard.sim.dataflow import Edge, Operator, Source, Window
from steelyard.sim.engines import ENGINES, EngineDesign, Ingestion, engine_query
from steelyard.sim.fluid import FluidSimulation
from steelyard.sim.hardware import Machine, Network
from steelyard.sim.laws import Exactly, Exponential, Growing, PerItem, Samples
from steelyard.sim.microbatch import BatchCosts, MicroBatches, simulate_batches
from steelyard.sim.profiles import PROFILES, Figure, Profile, profile, read_profile
from steelyard.sim.results import Latency, SimulationResult, Total
from steelyard.sim.run import simulate
from steelyard.sim.scenario import Scenario
from steelyard.sim.simulation import Simulation
from steelyard.sim.stopping import Checkpoints, Failure

__all__ = [
    "ENGINES",
    "PROFILES",
    "Autoscaled",
    "BatchCosts",
    "Checkpoints",
    "Edge",
    "EngineDesign",
    "Exactly",
    "Exponential",
    "Failure",
    "Figure",
    "FluidSimulation",
    "Growing",
    "Ingestion",
    "Latency",
    "Machine",
    "MicroBatches",
    "Network",
    "Operator",
    "PerItem",
    "Profile",
    "Samples",
    "Scenario",
    "Simulation",
    "SimulationResult",
    "Source",
    "Total",
    "Window",
    "autoscale",
    "engine_query",
    "mermaid",
    "profile",
    "read_profile",
    "simulate",
    "simulate_batches",
    "svg",
]
