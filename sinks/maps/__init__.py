"""Writers of maps: puts into an IMap, staged rows and their two phases."""
