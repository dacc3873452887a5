"""What tests of the Python package share: the package from the tree, a real daemon, a client. Needs NumPy."""

import os
import sys
import unittest

import harness

SOURCE = os.environ["HONE_SOURCE_DIR"]
SANITIZED = os.environ.get("HONE_SANITIZE", "") != ""

DEBIAN = "/usr/bin/python3"  # whose NumPy the package python3-numpy is

try:
    import numpy
except ImportError:
    if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN) and os.path.exists(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, *sys.argv])
    numpy = None


@unittest.skipIf(numpy is None, "NumPy is not installed")
@unittest.skipIf(SANITIZED, "Python would have to be built with the sanitizer, too")
class PythonCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in ("", "network_", "opencl_", "cuda_"):
            library = os.path.join(harness.BUILD, "lib", f"libhone_{name}".rstrip("_") + ".so")
            os.environ[f"HONE_{name.upper()}LIBRARY"] = library
        os.environ["HONE_COMMAND"] = os.path.join(harness.BIN, "hone")
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        cls.directory = harness.Directory()
        os.environ.update(cls.directory.environment)
        cls.daemon = harness.Daemon(cls.directory, "--no-idle")
        import hone  # pylint: disable=import-outside-toplevel
        cls.hone = hone
        cls.client = hone.Client(socket=cls.directory.socket, disk_cache=False)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.daemon.stop()
        cls.directory.remove()

    def arrays(self, *shapes):
        random = numpy.random.default_rng(7)
        return [random.random(shape, dtype=numpy.float32) for shape in shapes]

    def session(self, path, **options):
        return self.hone.Session(path, socket=self.directory.socket, start=False, **options)
