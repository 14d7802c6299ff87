"""What fills the inbox of a queue, and how its records are read as messages."""
