"""`eo-kafka ui`: what the commands tell of a cluster's jobs, as a page."""
