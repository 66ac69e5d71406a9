"""Many runs, each done once: here, in processes, or on a cluster."""
