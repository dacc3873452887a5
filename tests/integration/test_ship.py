"""The whole way of a network's kernels: tuned here, signed, taken up by another honed, served by a device without a compiler."""

import os
import shutil
import subprocess

import harness

LIST = os.path.join(harness.SOURCE, "models", "resnet18.kernels")


class Ship(harness.HoneTest):
    def test_resnet18_is_tuned_once_and_hits_everywhere(self):
        bundles = os.path.join(self.directory.path, "bundles.d")
        keys = os.path.join(self.directory.path, "config", "hone", "keys")
        for folder in (bundles, keys):
            os.makedirs(folder, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        bundle = os.path.join(bundles, "resnet18.bundle")
        here = self.start()
        total = self.hone_json("tune", LIST, "--trials", "1", "--all")[-1]
        self.assertEqual((total["searched"], total["kernels"]), (18, 18))
        self.assertEqual(total["trials"], 18)
        out = self.hone_json("export", "-o", bundle, "--artifacts", "--name", "resnet18", "--key",
                             os.path.join(self.directory.path, "fleet.key"))[0]
        self.assertEqual((out["records"], out["artifacts"], out["signed"]), (18, 18, True))
        self.assertEqual(here.stop(), 0)
        shutil.copy(os.path.join(self.directory.path, "fleet.pub"), keys)

        # Another honed: an empty cache of its own.
        shutil.rmtree(os.path.join(self.directory.path, "cache"))
        there = self.start()
        last = self.hone_json("import", bundle)[-1]
        self.assertEqual((last["vouched"], last["added"], last["artifacts"], last["refused"]), ("known", 18, 18, 0))
        self.assert_all_hit()
        self.assertEqual(there.stop(), 0)

        # A device: the same file, and nothing else.
        shutil.rmtree(os.path.join(self.directory.path, "cache"))
        with open(os.path.join(self.directory.path, "edge.log"), "wb") as log:
            edge = subprocess.Popen([os.path.join(harness.BIN, "honed-edge"), "--bundles", bundles, "--keys", keys],
                                    env=self.directory.environment, stderr=log)
        self.addCleanup(lambda: (edge.kill(), edge.wait()))
        self.wait_until(lambda: os.path.exists(self.directory.socket))
        self.assert_all_hit()
        self.assertEqual(self.hone("missing").splitlines()[1:], [])

    def assert_all_hit(self):
        """Nothing is built: what came along is checked, and served."""
        *rows, last = self.hone_json("warm", LIST, "--no-compile")
        self.assertEqual({(row["hit"], row["origin"]) for row in rows}, {(True, "imported")})
        self.assertEqual((len(rows), last["compiled"], last["failed"]), (18, 0, 0))
        stats = self.hone_json("stats")[0]
        self.assertEqual((stats["imported_checked"], stats["misses"]), (18, 0))


if __name__ == "__main__":
    harness.main()
