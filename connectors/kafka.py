"""`format("eo-kafka")`: the class that Spark finds, and nothing but the way to the four roles."""
