"""Measurements worth their name: times in turns, and statistics."""
