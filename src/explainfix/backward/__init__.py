"""What a forward pass keeps for its backward pass, and how networks keep less of it."""
