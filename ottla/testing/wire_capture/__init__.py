"""What went over the wire, in a file: captured, shown, compared, sent again (docs/wire.md)."""
