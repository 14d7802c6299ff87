"""Everything that makes a write happen once."""
