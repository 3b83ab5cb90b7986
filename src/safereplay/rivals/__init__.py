"""Rivals: other ways to be safe and other ways to replay, one file each."""
