"""Record batches, Kafka's message format v2: headers, records, codecs, CRC-32C.

`batch` is what the broker's hot path uses: it reads and patches the 61 bytes of a header and never looks inside.
`record` goes inside: it builds batches and walks their records. Formats older than v2 are refused everywhere.
"""
