"""What learnt policies share: networks, replay, targets, saving and loading, curves. Training needs the extra `learn`."""
