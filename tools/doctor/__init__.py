"""`eo-kafka doctor`: checks of this machine and of a cluster."""
