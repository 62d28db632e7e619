"""The instances, workers and wires of a job."""

from __future__ import annotations

from collections import defaultdict

from steelyard.checkpoint import CheckpointProtocol, Place, Wire
from steelyard.sim.checkpoints.costs import ProtocolCosts
from steelyard.sim.checkpoints.job import Feed, Hop, Job, Stage, instance_name
from steelyard.sim.checkpoints.running import Charges, Instance, Outlet, Worker


class Graph:
    """A job with all of its instances.

    Parameters
    ----------
    job
        What runs.
    protocol
        Whose halves are beside instances.
    costs
        Of everything beside operators.
    """

    def __init__(self, job: Job, protocol: CheckpointProtocol, costs: ProtocolCosts) -> None:
        self.charges = {hop: Charges(hop, costs, protocol.logged) for hop in job.hops}
        self.unkept = {hop: Charges(hop, costs, logged=False) for hop in job.hops}
        """Of wires that no log is kept of, where others have one."""
        self.names = [instance_name(operator, worker) for operator in job.operators for worker in job.hosts(operator)]
        self.wires: list[Wire] = []
        self.hop_of: list[Hop] = []
        self.charges_of: list[Charges] = []
        """By wire."""
        into: dict[str, list[Wire]] = defaultdict(list)
        away: dict[str, list[Wire]] = defaultdict(list)
        for hop in job.hops:
            for sender in job.hosts(hop.sender):
                for receiver in job.hosts(hop.receiver) if hop.keyed else (sender,):
                    wire = Wire(
                        len(self.wires), instance_name(hop.sender, sender), instance_name(hop.receiver, receiver)
                    )
                    self.wires.append(wire)
                    self.hop_of.append(hop)
                    self.charges_of.append(self.charges[hop])
                    into[wire.receiver].append(wire)
                    away[wire.sender].append(wire)
        self.workers = [Worker(number) for number in range(job.workers)]
        self.instances: dict[str, Instance] = {}
        operators: list[Feed | Stage] = [*job.feeds, *job.stages]
        for operator in operators:
            for worker in (self.workers[number] for number in job.hosts(operator.name)):
                name = instance_name(operator.name, worker.number)
                place = Place(name, tuple(self.names), tuple(into[name]), tuple(away[name]))
                one = self.instances[name] = Instance(place, operator, worker, protocol)
                worker.instances.append(one)
        for one in self.instances.values():
            one.outlets = tuple(self._outlet(one, hop, away[one.name]) for hop in job.away(one.operator.name))

    def _outlet(self, one: Instance, hop: Hop, wires: list[Wire]) -> Outlet:
        own = [wire for wire in wires if self.hop_of[wire.number] is hop]
        salt = 1 + next(place for place, known in enumerate(dict.fromkeys(self.hop_of)) if known is hop)
        receivers = tuple(self.instances[wire.receiver] for wire in own)
        return Outlet(hop, self.charges[hop], tuple(wire.number for wire in own), receivers, salt, self.unkept[hop])
