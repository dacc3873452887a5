"""Kernels that leave a machine in a bundle, and what another honed does with it."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

import harness
from harness import SMALL, small

OTHER, THIRD = small(77), small(55)


class Bundles(harness.HoneTest):
    def setUp(self):
        super().setUp()
        self.bundle = os.path.join(self.directory.path, "out.bundle")
        self.keys = os.path.join(self.directory.path, "config", "hone", "keys")
        os.makedirs(self.keys, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        self.secret = os.path.join(self.directory.path, "fleet.key")
        self.public = os.path.join(self.directory.path, "fleet.pub")

    def serve_two(self):
        daemon = self.start()
        for kernel in (SMALL, OTHER):
            self.hone("get", kernel)
        return daemon

    def move_to_an_empty_cache(self, daemon):
        daemon.stop()
        shutil.rmtree(os.path.join(self.directory.path, "cache"))
        return self.start()

    def stat(self, name):
        return next(one["value"] for one in self.stats() if one["name"] == name)

    def stats(self):
        rows = []
        for one in self.hone_json("stats"):
            rows.extend([one] if "name" in one else [{"name": key, "value": value} for key, value in one.items()])
        return rows

    def export(self, *arguments, key=True):
        return self.hone_json("export", "-o", self.bundle, *(["--key", self.secret] if key else []), *arguments)[0]

    def test_a_signed_bundle_with_code_is_hits_all_over_and_checked_once(self):
        daemon = self.serve_two()
        out = self.export("--artifacts")
        self.assertEqual((out["records"], out["artifacts"], out["signed"]), (2, 2, True))
        daemon = self.move_to_an_empty_cache(daemon)
        *rows, last = self.hone_json("import", self.bundle, "--trust", self.public)
        self.assertEqual([row["fate"] for row in rows], ["added", "added"])
        self.assertEqual((last["vouched"], last["added"], last["artifacts"]), ("known", 2, 2))
        for kernel in (SMALL, OTHER):
            served = self.hone_json("get", kernel, "--no-compile")[0]
            self.assertEqual((served["hit"], served["origin"]), (True, "imported"))
        self.assertEqual((self.stat("imported_checked"), self.stat("misses")), (2, 0))
        self.hone("get", SMALL, "--no-compile")
        # Repeated, it changes nothing, and what was checked stays checked.
        self.assertEqual(self.hone_json("import", self.bundle, "--trust", self.public)[-1]["kept"], 2)
        daemon.stop()
        self.start()
        self.assertTrue(self.hone_json("get", SMALL, "--no-compile")[0]["hit"])
        self.assertEqual(self.stat("imported_checked"), 0)
        self.assertTrue(self.hone_json("run", SMALL)[0]["verified"])
        self.assertIn("imported", self.hone("ls"))
        shown = self.hone("show", json.loads(self.hone("--json", "ls").splitlines()[0])["fingerprint"])
        self.assertIn("bundle kernels version", shown)

    def test_unsigned_or_by_an_unknown_key_only_schedules_are_taken(self):
        daemon = self.serve_two()
        for key, vouched in ((False, "unsigned"), (True, "unknown")):
            self.export("--artifacts", key=key)
            daemon = self.move_to_an_empty_cache(daemon)
            last = self.hone_json("import", self.bundle)[-1]
            self.assertEqual((last["vouched"], last["added"], last["artifacts"], last["artifacts_left"]),
                             (vouched, 2, 0, 2))
            for kernel in (SMALL, OTHER):  # compiled here, whoever comes first, it or the daemon
                self.assertEqual(self.hone_json("get", kernel)[0]["origin"], "imported")
            self.assertEqual(self.stat("imported_checked"), 0)

    def test_what_it_brought_is_made_ready_before_somebody_asks_what_is_worth_most_first(self):
        daemon = self.serve_two()
        for _ in range(20):
            self.hone("get", OTHER)
        time.sleep(1.5)  # uses are counted once a second
        names = {kernel: self.hone_json("get", kernel)[0]["fingerprint"] for kernel in (SMALL, OTHER)}
        for arguments, checked in ((["--artifacts"], 2), ([], 0)):
            self.export(*arguments)
            daemon = self.move_to_an_empty_cache(daemon)
            begun = len(daemon.log())
            self.hone("import", self.bundle, "--trust", self.public)
            for name in names.values():
                self.wait_until(lambda name=name: name in daemon.log()[begun:])
            log = daemon.log()[begun:]
            self.assertLess(log.index(names[OTHER]), log.index(names[SMALL]))
            for kernel in (SMALL, OTHER):
                self.assertTrue(self.hone_json("get", kernel, "--no-compile")[0]["hit"])
            self.assertEqual((self.stat("imported_checked"), self.stat("misses"), self.stat("imports_waiting")),
                             (checked, 0, 0))

    def test_a_key_in_the_directory_is_trusted_until_it_is_revoked(self):
        daemon = self.serve_two()
        self.export("--artifacts")
        daemon = self.move_to_an_empty_cache(daemon)
        shutil.copy(self.public, self.keys)
        self.assertIn("trusted with schedules artifacts", self.hone("bundle", "verify", self.bundle))
        with open(self.public, encoding="utf-8") as public:
            key = next(line.split()[1] for line in public if line.startswith("public "))
        revoked = os.path.join(self.keys, "revoked")
        with open(revoked, "w", encoding="utf-8") as file:
            file.write(key + " lost\n")
        for command in (("import",), ("bundle", "verify")):
            self.hone(*command, self.bundle, status=1)
            self.assertIn("was revoked: lost", self.last_error)
            self.assertEqual(len(self.last_error.splitlines()), 1)
        self.assertEqual(self.hone("ls"), "no kernels\n")
        os.remove(revoked)
        self.assertEqual(self.hone_json("import", self.bundle)[-1]["artifacts"], 2)

    def serve_two_from_a_trusted_bundle(self):
        daemon = self.serve_two()
        self.export("--artifacts")
        daemon = self.move_to_an_empty_cache(daemon)
        shutil.copy(self.public, self.keys)
        self.hone("import", self.bundle)
        for kernel in (SMALL, OTHER):
            self.assertTrue(self.hone_json("get", kernel)[0]["hit"])
        return daemon

    def test_code_of_a_key_that_was_revoked_is_made_again(self):
        daemon = self.serve_two_from_a_trusted_bundle()
        with open(self.public, encoding="utf-8") as public:
            key = next(line.split()[1] for line in public if line.startswith("public "))
        with open(os.path.join(self.keys, "revoked"), "w", encoding="utf-8") as file:
            file.write(key + " lost\n")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for_log("reloaded")
        self.assertFalse(self.hone_json("get", SMALL)[0]["hit"])
        daemon.stop()
        self.start()
        self.assertTrue(self.hone_json("get", SMALL)[0]["hit"])
        self.assertFalse(self.hone_json("get", OTHER)[0]["hit"])
        self.assertEqual((self.stat("imported_checked"), self.stat("misses")), (0, 1))

    def test_where_nobody_can_say_which_keys_were_revoked_code_is_made_again(self):
        daemon = self.serve_two_from_a_trusted_bundle()
        revoked = os.path.join(self.keys, "revoked")
        with open(revoked, "w", encoding="utf-8") as file:
            file.write("the key that was lost\n")
        daemon.stop()
        daemon = self.start()
        daemon.wait_for_log("revoked_not_read")
        self.assertFalse(self.hone_json("get", SMALL)[0]["hit"])
        os.remove(revoked)
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for_log("reloaded")
        self.assertTrue(self.hone_json("get", OTHER)[0]["hit"])  # it was checked before, and its key is trusted

    def test_what_is_dropped_into_a_directory_is_imported_once(self):
        daemon = self.serve_two()
        self.export("--artifacts")
        dropped = os.path.join(self.directory.path, "bundles.d")
        os.mkdir(dropped)
        shutil.copy(self.bundle, os.path.join(dropped, "fleet.bundle"))
        self.hone("get", THIRD)
        self.export(self.fingerprint_of(THIRD), key=False)
        daemon.stop()
        shutil.rmtree(os.path.join(self.directory.path, "cache"))
        shutil.copy(self.public, self.keys)
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write(f'[cache]\nbundles = "{dropped}"\n')
        daemon = self.start("--config", self.directory.config)
        self.wait_until(lambda: len(self.hone_json("ls")) == 2)
        self.assertTrue(self.hone_json("get", SMALL, "--no-compile")[0]["hit"])
        self.hone("rm", self.fingerprint_of(OTHER))
        # A later one comes when it is looked for again; what was removed does not, nor what others may have written.
        os.rename(self.bundle, os.path.join(dropped, "pool.bundle"))
        planted = os.path.join(dropped, "a.bundle")
        shutil.copy(os.path.join(dropped, "fleet.bundle"), planted)
        os.chmod(planted, 0o666)
        os.kill(daemon.pid, signal.SIGHUP)
        self.wait_until(lambda: len(self.hone_json("ls")) == 2)
        self.assertEqual(self.hone_json("get", THIRD)[0]["origin"], "imported")
        daemon.wait_for_log("bundle_left_out")
        daemon.stop()
        self.assertIn(planted, daemon.log())
        self.start("--config", self.directory.config)
        self.assertEqual(self.hone_json("get", OTHER)[0]["origin"], "default")

    def fingerprint_of(self, kernel):
        return self.hone_json("get", kernel)[0]["fingerprint"]

    def test_an_older_bundle_does_not_come_back(self):
        shutil.copy(self.public, self.keys)
        self.start()
        self.hone("get", SMALL)
        self.export("--name", "fleet")
        old = self.bundle + ".old"
        os.rename(self.bundle, old)
        self.hone("get", OTHER)
        self.export("--name", "fleet")
        self.hone("import", self.bundle)
        self.hone("import", old, status=1)
        self.assertIn("an older one does not replace it", self.last_error)
        self.hone("import", self.bundle)

    def test_equal_caches_are_equal_files_and_a_stranger_reads_them(self):
        self.serve_two()
        self.export("--artifacts")
        with open(self.bundle, "rb") as file:
            first = file.read()
        self.export("--artifacts")
        with open(self.bundle, "rb") as file:
            self.assertEqual(file.read(), first)
        reader = os.path.join(harness.SOURCE, "tests", "bundle_reader.py")
        head, *rows = subprocess.run(["python3", reader, self.bundle], capture_output=True, text=True,
                                     check=True).stdout.splitlines()
        self.assertEqual((json.loads(head)["records"], len(rows)), (2, 2))
        shown = self.hone_json("bundle", "show", self.bundle)
        self.assertEqual([row["fingerprint"] for row in shown[1:]], [json.loads(row)["kernel"] for row in rows])
        # Part of it, and without a daemon.
        part = self.hone_json("--cache", self.directory.cache, "export", "-o", self.bundle + ".part", "matmul")[0]
        self.assertEqual((part["records"], part["name"]), (1, "kernels-matmul"))
        self.assertEqual(self.hone("bundle", "diff", self.bundle, self.bundle + ".part").splitlines()[-1], "2 differences")
        self.hone("export", "-o", self.bundle, "--target", "neon", status=1)
        self.assertIn("no record is selected", self.last_error)
        self.assertEqual(self.hone_json("export", "-o", self.bundle, "--max-size", "6K")[0]["left_out"], 0)

    def test_a_registry_takes_it_as_an_image_layout(self):
        self.serve_two()
        folder = os.path.join(self.directory.path, "fleet")
        self.hone("export", "-o", self.bundle, "--oci", folder, "--artifacts", "--key", self.secret, "--name", "fleet",
                  "--bundle-version", "7")

        def blob(described):
            algorithm, digest = described["digest"].split(":")
            with open(os.path.join(folder, "blobs", algorithm, digest), "rb") as file:
                content = file.read()
            self.assertEqual((hashlib.new(algorithm, content).hexdigest(), len(content)), (digest, described["size"]))
            return content

        def read(name):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                return json.load(file)

        self.assertEqual(read("oci-layout"), {"imageLayoutVersion": "1.0.0"})
        index = read("index.json")
        described, = index["manifests"]
        self.assertEqual(described["annotations"]["org.opencontainers.image.ref.name"], "7")
        image = json.loads(blob(described))
        self.assertEqual((index["schemaVersion"], image["schemaVersion"], image["artifactType"]),
                         (2, 2, "application/vnd.hone.bundle.v1"))
        self.assertEqual(blob(image["config"]), b"{}")
        layer, = image["layers"]
        self.assertEqual(layer["annotations"]["org.opencontainers.image.title"], "fleet.bundle")
        with open(self.bundle, "rb") as file:
            self.assertEqual(blob(layer), file.read())
        self.assertEqual(len(os.listdir(os.path.join(folder, "blobs", "sha256"))), 3)
        # Nothing is written over, and nothing half written is left.
        self.hone("export", "--oci", folder, status=1)
        self.assertIn("something is there", self.last_error)
        self.hone("export", "--oci", "/proc/none/there", status=1)
        self.assertEqual([name for name in os.listdir(self.directory.path) if "unfinished" in name], [])
        self.hone("export", "--oci", folder + "-again", "--artifacts", "--key", self.secret, "--name", "fleet", "--bundle-version", "7")
        with open(os.path.join(folder, "index.json"), "rb") as one, open(os.path.join(folder + "-again", "index.json"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_what_many_contribute_is_taken_up_and_tells_of_nobody(self):
        daemon = self.start()
        self.hone("contribute", "-o", self.bundle, status=1)
        self.assertIn("nothing to give", self.last_error)
        *others, tuned = self.tune_one_of_several("--threads", "1")
        self.hone("get", OTHER)  # its default schedule is anybody's
        self.hone("contribute", "-o", self.bundle, "--without", tuned, status=1)
        given = self.hone_json("contribute", "-o", self.bundle)[0]
        self.assertEqual((given["records"], given["left_out"]), (1, len(others) + 1))
        shown = self.hone_json("bundle", "show", self.bundle)
        self.assertEqual(shown[0]["artifacts"], 0)
        with open(self.bundle, "rb") as file:
            content = file.read()
        self.assertNotIn(os.uname().nodename.encode(), content)
        # A pool: this file, the same again, and one that is none.
        pool = [os.path.join(self.directory.path, f"{number}.bundle") for number in range(3)]
        for number, path in enumerate(pool):
            with open(path, "wb") as file:
                file.write(content if number != 1 else content[:-1])
        self.move_to_an_empty_cache(daemon)
        ends = [row for row in self.hone_json("import", *pool, status=1) if "vouched" in row]
        self.assertEqual([(end["vouched"], end["added"], end["kept"]) for end in ends], [("unsigned", 1, 0), ("unsigned", 0, 1)])
        self.assertIn("1.bundle", self.last_error)
        served = self.hone_json("run", tuned, "--threads", "1")[0]
        self.assertEqual((served["origin"], served["verified"]), ("imported", True))

    def test_damage_changes_nothing(self):
        daemon = self.serve_two()
        self.export("--artifacts")
        daemon = self.move_to_an_empty_cache(daemon)
        with open(self.bundle, "rb") as file:
            sound = file.read()
        for damaged in (b"", sound[:20], sound[:1024], sound[:-1], sound[:100] + b"?" + sound[101:], b"x" * 5000,
                        sound[:8] + b"\x02" + sound[9:]):
            with open(self.bundle, "wb") as file:
                file.write(damaged)
            self.hone("import", self.bundle, "--trust", self.public, status=1)
            self.assertEqual(len(self.last_error.splitlines()), 1, self.last_error)
        self.assertEqual(self.hone("ls"), "no kernels\n")
        self.hone("--cache", self.directory.cache, "import", self.bundle, status=1)

    def test_what_was_tuned_here_stays(self):
        self.start()
        self.hone("get", SMALL)
        self.export()
        self.hone("pin", json.loads(self.hone("--json", "ls").splitlines()[0])["fingerprint"])
        *rows, last = self.hone_json("import", self.bundle)
        self.assertEqual((last["kept"], rows[0]["why"]), (1, "it is pinned"))

    def test_a_careless_secret_key_is_warned_about(self):
        self.start()
        self.hone("get", SMALL)
        os.chmod(self.secret, 0o644)
        self.export()
        self.assertIn("others can read this secret key", self.last_error)
        self.hone("keygen", "fleet", "--dir", self.directory.path, status=1)


if __name__ == "__main__":
    harness.main()
