"""Scripts: lists of faults and actions that come at moments of broker time, after hits of rules, or after facts."""
