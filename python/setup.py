"""Puts libhone.so, libhone_network.so and those for devices into the package, where the tree was built: beside this folder in
build/release, or in $HONE_BUILD_DIR. Without them the package looks for installed ones when it needs them.

$HONE_LIBRARIES names further libraries, separated by colons, that those need and the machine may lack; then the wheel is for
Linux with at least this machine's glibc: what was linked against it needs nothing newer. scripts/wheel.sh sets it."""
import os
import platform
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("HONE_BUILD_DIR", os.path.join(HERE, "..", "build", "release"))
NAMES = ("libhone.so", "libhone_network.so", "libhone_opencl.so", "libhone_cuda.so")
LIBRARIES = [os.path.join(BUILD, "lib", name) for name in NAMES]
LIBRARIES += [path for path in os.environ.get("HONE_LIBRARIES", "").split(":") if path]
LIBRARIES = [path for path in LIBRARIES if os.path.exists(path)]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        for path in LIBRARIES:
            shutil.copy2(os.path.realpath(path), os.path.join(self.build_lib, "hone", os.path.basename(path)))


class WithLibraries(Distribution):
    def has_ext_modules(self):
        return bool(LIBRARIES)


commands = {"build_py": BuildWithLibrary}
try:
    from wheel.bdist_wheel import bdist_wheel
except ImportError:
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:
        bdist_wheel = None

if bdist_wheel is not None:

    class ForAnyPython(bdist_wheel):
        """The libraries are loaded by ctypes: they are the platform's, and no Python's."""

        def get_tag(self):
            _, _, tag = super().get_tag()
            if not LIBRARIES:
                return "py3", "none", "any"
            library, version = platform.libc_ver()
            if os.environ.get("HONE_LIBRARIES") and library == "glibc":
                tag = f"manylinux_{version.replace('.', '_')}_{platform.machine()}"
            return "py3", "none", tag

    commands["bdist_wheel"] = ForAnyPython

setup(cmdclass=commands, distclass=WithLibraries)
