"""`eo-kafka verify`: two topics compared."""
