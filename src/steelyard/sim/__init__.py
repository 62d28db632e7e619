"""Clusters that are not there: queues, instances and messages in simulated time, for the policies of the library."""
