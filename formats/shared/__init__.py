"""What the formats share: Spark's types as Arrow's, columns made of slots."""
