"""`eo-kafka snapshots`, and what of it `eo_kafka` offers."""
