"""Data and experiments. The library never imports this."""
