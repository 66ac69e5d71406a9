"""Convolutions in two parts: one that is fixed and looks, one that is learned and steers."""
