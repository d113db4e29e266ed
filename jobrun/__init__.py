"""jobrun: one copy at a time, every window once, what was missed is made up."""

__version__ = "1.0.0"
