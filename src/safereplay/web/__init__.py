"""The playground: a page in the browser, and the small server behind it."""
