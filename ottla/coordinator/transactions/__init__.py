"""Transactional ids: their state machine, their records in `__transaction_state`, and the markers to be written."""
