"""What is in the bytes of keys and values: typed columns, bad records, a schema registry."""
