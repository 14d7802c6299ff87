"""The direct lane: tasks read offset ranges and write the records themselves, past Spark's rows."""

NAME = "eo-kafka-direct-"  # how the name of each lane's format begins
