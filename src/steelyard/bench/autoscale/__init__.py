"""Chapter 4 of Siachamis 2024: published autoscalers beside each other, on simulated clusters."""
