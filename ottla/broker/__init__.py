"""The shell: sockets, the table of APIs, handlers, configuration, and the effects that the core asks for."""
