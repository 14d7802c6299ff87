"""JSON: values, and whole columns at once by compiled loops."""
