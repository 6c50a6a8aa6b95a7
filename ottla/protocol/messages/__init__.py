"""One module per API: its request and response as text tables, with what each version changed."""
