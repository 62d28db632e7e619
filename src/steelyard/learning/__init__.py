"""What learnt policies share: networks, replay, targets, saving, curves. Training needs the extra `learn`."""
