"""What benchmarks read from the command line, and print."""

import argparse


def options(**defaults):
    """Options of the names and types of their defaults: of a tuple several values, else one."""
    parser = argparse.ArgumentParser()
    for name, default in defaults.items():
        flag, several = "--" + name.replace("_", "-"), isinstance(default, tuple)
        kind = type((default or (0,))[0] if several else default)
        parser.add_argument(flag, type=kind, nargs="*" if several else None, default=default)
    return parser.parse_args()


def print_tables(tables, **defaults):
    """Call the functions that ``--tables`` picks, of all, with the options."""
    functions = {table.__name__: table for table in tables}
    given = options(tables=tuple(functions), **defaults)
    for name in given.tables:
        functions[name](given)


def head(*columns, left=1):
    """Print the head of a table, whose first columns are text."""
    print()
    row(*columns)
    print("|" + "---|" * left + "---:|" * (len(columns) - left))


def row(*cells):
    """Print a row of a table."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)
