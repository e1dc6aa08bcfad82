"""What public objects are called on one line: kind, sizes and type, no numbers of arrays."""

from collections.abc import Callable


def one_line_repr(instance: object, describe: Callable[[], tuple[str, dict[str, object]]]) -> str:
    """Return ``Name(words, size=3, ...)``.

    Parameters
    ----------
    instance
        The object, for its class.
    describe
        Returns words and sizes. It may fail: JAX rebuilds pytrees with placeholders for arrays and
        shows these in its own messages, and a `repr` must not hide them by an error.
    """
    name = type(instance).__name__
    try:
        words, sizes = describe()
    except (AttributeError, TypeError, IndexError, ValueError):
        return f"{name}(...)"
    parts = [words] if words else []
    parts += [f"{size}={value}" for size, value in sizes.items()]
    return f"{name}({', '.join(parts)})"
