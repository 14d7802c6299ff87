"""`eo-kafka prepare`: work that each process, or each machine's first query, would do itself."""
