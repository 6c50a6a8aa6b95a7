"""What went wrong between a broker and its clients, judged from their requests and answers when a test ends.

    routes ── Recorder ── AuditHistory ──┐
    facts of groups ──┘             ├── judges ── AuditFinding ── explained by rules
    logs as they are in the end ────┘

`findings` has what can be found. The judges know a `AuditHistory` and nothing of Ottla; who is in doubt is innocent.
"""
