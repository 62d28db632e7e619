"""Experiments of Prompt and Prompt+, and what partitions batches."""
