"""`eo-kafka new`: projects made of `templates/`, which are data to it."""
