"""Datasets: what they are, where they come from, and how training reads them."""
