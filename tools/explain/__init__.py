"""`eo-kafka explain`: what a pipeline guarantees, by its weakest link."""
