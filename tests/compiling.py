"""Ways to compile in tests, where compiling costs seconds and evaluating milliseconds; a count."""

from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import jax
import jax.monitoring

_MOST_MEMORY_MAPS = 20_000

# Code that is optimized less, but compiled in half of the time: what JAX's own option
# `JAX_DISABLE_MOST_OPTIMIZATIONS` sets, under which `make test` runs.
QUICK = {"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": 0}
FULL = {"xla_llvm_disable_expensive_passes": False, "xla_backend_optimization_level": 3}


def jit(function):
    """Compile quickly rather than well."""
    return jax.jit(function, compiler_options=QUICK)


def fully_optimized_jit(function):
    """Compile as JAX does unless it is told otherwise: for accuracy as users get it, long loops."""
    return jax.jit(function, compiler_options=FULL)


@partial(jax.jit, static_argnums=1, compiler_options=QUICK)
def evaluate(distribution, name, *args):
    """``distribution.name(*args)``, or ``distribution.name`` of a property, as one program.

    Operation by operation it would be dozens, each compiled for its shapes. All tests share the
    program of one class of distributions, one name and one set of shapes. Not for distributions of
    linear combinations: outside of ``jit`` they have few programs for all shapes.
    """
    value = getattr(distribution, name)
    return value(*args) if callable(value) else value


_open_counts = []


@cache
def _listen():
    """Tell JAX once: not all versions can be told to stop."""

    def note(event, _, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            for count in _open_counts:
                count.append(str(details.get("fun_name", "a program")))

    jax.monitoring.register_event_duration_secs_listener(note)


@contextmanager
def counted_compilations():
    """The programs that are compiled inside, or loaded from the compilation cache; their names."""
    _listen()
    compiled = []
    _open_counts.append(compiled)
    try:
        yield compiled
    finally:
        _open_counts.pop()


def drop_many_programs():
    """Free compiled programs, but not before there are many.

    Each of them holds two or three memory maps, and at the system's limit (65,530 by default on
    Linux) XLA crashes.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > _MOST_MEMORY_MAPS:
        jax.clear_caches()
