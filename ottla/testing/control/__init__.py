"""Control over HTTP: what the handle of a test does, for tests in any language (docs/control.md).

`listener` opens the address, `access` says who may ask, `routes` has the table of what can be asked for.
"""
