"""What a model does, written down: its passes as a graph of operations."""
