"""jobrun: one copy at a time, every window once, what was missed is made up."""

__version__ = "1.0.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.mark import done

__all__ = ["__version__", "done"]


def __getattr__(name: str) -> object:
    # `import jobrun` stands in front of every call; `done` is for commands alone.
    if name == "done":
        from jobrun.mark import done

        return done
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
