"""Policies of placement: which machine or worker an instance lives on."""
