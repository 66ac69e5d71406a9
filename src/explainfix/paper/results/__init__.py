"""The outcome of an experiment and the numbers of its runs, on disk and in the documentation."""
