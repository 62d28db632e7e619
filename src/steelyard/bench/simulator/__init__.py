"""The simulator beside theory and reality, and how fast it is."""
