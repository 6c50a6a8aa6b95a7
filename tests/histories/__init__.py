"""A judge of what clients lived through: events in, violations out.

`events` is the vocabulary, `files` the same as JSON lines, `checker.check(events, final_logs)` the verdict. Nothing
here knows Ottla: a history of any broker that speaks Kafka's protocol can be judged.
"""
