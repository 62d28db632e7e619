"""Experiments of similarity joins."""
