"""The shell of the coordinators: which partitions of a coordinator topic are served here, how requests reach them."""
