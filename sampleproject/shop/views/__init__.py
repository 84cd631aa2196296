"""The shop's pages, one file a subject."""
