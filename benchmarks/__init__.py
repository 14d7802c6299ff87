"""What eo-kafka costs and gains, measured beside Spark's own connector in one session."""
