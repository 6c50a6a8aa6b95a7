"""The hierarchical timing wheel, the purgatory and the clock interface. No I/O."""
