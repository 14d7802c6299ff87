"""What everything stands on: errors, options, offsets, the protocol as data, compiled loops."""

from .process.log_lines import show_time_and_level

show_time_and_level()
