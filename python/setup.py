"""Puts libhone.so and libhone_network.so into the package, where the tree was built: beside this folder in build/release, or
in $HONE_BUILD_DIR. Without them the package looks for installed ones when it needs them."""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        build = os.environ.get("HONE_BUILD_DIR", os.path.join(HERE, "..", "build", "release"))
        for name in ("libhone.so", "libhone_network.so"):
            library = os.path.join(build, "lib", name)
            if os.path.exists(library):
                shutil.copy2(os.path.realpath(library), os.path.join(self.build_lib, "hone", name))


setup(cmdclass={"build_py": BuildWithLibrary})
