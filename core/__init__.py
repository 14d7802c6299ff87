"""What everything stands on: errors, options, offsets, the protocol as data, compiled loops."""
