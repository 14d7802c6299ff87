"""`eo-kafka run`: keeps a job running, and says when it cannot be kept."""
