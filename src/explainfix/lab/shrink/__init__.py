"""From a trained network to a smaller, faster one, at a loss that the user names."""
