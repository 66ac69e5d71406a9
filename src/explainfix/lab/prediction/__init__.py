"""What a model says about images, kept as numbers or drawn over the images."""
