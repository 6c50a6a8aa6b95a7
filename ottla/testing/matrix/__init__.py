"""`pytest --ottla-faults-matrix`: a suite under each of a list of faults (docs/faults-matrix.md)."""
