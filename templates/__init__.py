"""What `eo-kafka new` writes: a folder for each template, and `skeleton`, which all share.

The files are data here: they are modules of the project that they are copied into.
"""
