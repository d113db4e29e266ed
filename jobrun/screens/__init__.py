"""Rows to what a screen says: one file a screen, pure functions, no clock, no printing."""
