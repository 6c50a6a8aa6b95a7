"""The service after the tests: `diff -r src/shop/as_written src/shop/corrected` is all that has changed."""
