"""`NamedTuple` that is cheap to define, for the values of a call.

typing's compiles the annotation of every field and evaluates a `__new__` for each class: 0.1 to
0.3 ms apiece, 6 of the 55 ms of a call whose command is `true`. This one puts a getter in the place
of each field. A type checker sees typing's own, and checks what is passed.
"""

from __future__ import annotations

from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Shape(type):
        """Makes the class: fields from its annotations, defaults from what stands behind them."""

        def __new__(mcs, name, bases, body):
            shape = super().__new__(mcs, name, bases, {"__slots__": (), **body})
            fields = shape._fields = shape.__match_args__ = tuple(shape.__annotations__)
            shape._field_defaults = {field: body[field] for field in fields if field in body}
            for place, field in enumerate(fields):
                setattr(shape, field, property(itemgetter(place)))
            return shape

    class NamedTuple(tuple, metaclass=_Shape):
        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = _complete(cls, values, named)
            return super().__new__(cls, values)

        def __repr__(self):
            fields = (f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({', '.join(fields)})"

        def __getnewargs__(self):  # for copy and pickle, which call __new__
            return tuple(self)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

    def _complete(cls, values, named):
        """A value for each field, from the defaults where none is given."""
        rest = cls._fields[len(values) :]
        given = {**cls._field_defaults, **named}
        missing = [field for field in rest if field not in given]
        unexpected = [name for name in named if name not in rest]  # or given twice
        if missing or unexpected or len(values) > len(cls._fields):
            what = f"missing {missing}, unexpected {unexpected}, {len(values)} by place"
            raise TypeError(f"{cls.__name__}({', '.join(cls._fields)}): {what}")
        return (*values, *(given[field] for field in rest))
