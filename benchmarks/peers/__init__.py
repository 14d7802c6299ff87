"""eo-kafka beside Flink, Quix Streams and a bare consumer loop: `python -m benchmarks.peers`."""
