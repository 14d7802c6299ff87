"""Files behind the protocol's port: the options of `format("eo-files")`, and checks at a start."""
