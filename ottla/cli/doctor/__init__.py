"""`ottla doctor`: looks at a cluster from outside and says what is wrong with it (docs/operators.md §15)."""
