"""The direct lane: tasks read offset ranges and write the records themselves, past Spark's rows."""
