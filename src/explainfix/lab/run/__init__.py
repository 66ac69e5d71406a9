"""One training run: its config, its folder, the loop, what it scores and predicts."""
