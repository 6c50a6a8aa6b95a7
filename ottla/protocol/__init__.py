"""The wire: primitives, schema tables, the codec compiler, framing, record batches and errors. No I/O."""
