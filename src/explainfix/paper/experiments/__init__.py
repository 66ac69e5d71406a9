"""The paper's tables and figures, one file each; none imports another."""
