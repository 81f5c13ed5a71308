"""Builds the compiled bodies; all else that a build has to know is in pyproject.toml.

Without a C compiler, or without Python's headers, the package installs all the same and
the plain bodies serve. Whether there is one is asked with a program of one line, and not
by forgiving what fails: a fault in our own source fails the build.
"""

import os
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError

COMPILED_BODIES = [
    Extension("timingwheel._wheel", ["timingwheel/_wheel.pyx"]),
    Extension("timingwheel.engine._lane", ["timingwheel/engine/_lane.pyx"]),
    Extension("timingwheel.engine._table", ["timingwheel/engine/_table.pyx"]),
    Extension("wal._codec", ["wal/_codec.pyx"]),
    Extension("wal._plan", ["wal/_plan.pyx"]),
]
# For the benchmarks in this tree alone; never part of what is installed elsewhere.
BENCH_BASELINE = Extension("bench._baseline", ["bench/_baseline.c"])

NOTE = """\
*** NOTE: no compiled bodies: {reason}.
*** timingwheel installs and works without them, and is about ten times slower where it
*** counts; timingwheel.COMPILED is False. With a C compiler and Python's headers (Debian:
*** apt-get install gcc python3-dev), install it again to have them."""


class BuildWhatCanBeCompiled(build_ext):
    """build_ext for a machine that may lack a compiler, and for no other excuse."""

    def initialize_options(self) -> None:
        """Keep the C that Cython writes out of the source tree."""
        super().initialize_options()
        self.cython_c_in_temp = True

    def run(self) -> None:
        """Build, but what is for this tree alone only where it is built for this tree."""
        if not (self.inplace or self.editable_mode):
            self.extensions.remove(BENCH_BASELINE)
        super().run()

    def build_extensions(self) -> None:
        """Build every extension, or say why this machine cannot build any."""
        reason = self._reason_against()
        if reason:
            self.warn(NOTE.format(reason=reason))
            self.extensions.clear()
            return
        super().build_extensions()

    def _reason_against(self) -> str:
        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, "probe.c")
            with open(source, "w", encoding="ascii") as file:
                file.write("#include <Python.h>\nint probe(void) { return 0; }\n")
            try:
                self.compiler.compile(
                    [source], output_dir=directory, include_dirs=self.include_dirs
                )
            except (CompileError, ExecError, PlatformError) as error:
                return f"a program of one line does not compile here ({error})"
        return ""


setup(
    ext_modules=[*COMPILED_BODIES, BENCH_BASELINE],
    cmdclass={"build_ext": BuildWhatCanBeCompiled},
)
