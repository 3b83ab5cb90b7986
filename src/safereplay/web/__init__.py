"""The playground: a page in the browser, and its server."""
