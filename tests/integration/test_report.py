"""What `hone report` promises: one page that is well-formed, loads nothing, tells every kernel, and spoils no file."""

import os
import stat
import subprocess
import unittest
import xml.etree.ElementTree

import harness
from harness import SMALL, small

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
LOADING = {"src", "srcset", "data", "action", "background", "poster", "formaction"}


class Report(harness.HoneTest):
    def setUp(self):
        super().setUp()
        self.page = os.path.join(self.directory.path, "report.html")

    def parse(self, text):
        """The root, after what holds for every page."""
        root = xml.etree.ElementTree.fromstring(text)
        self.assertEqual(root.tag, HTML + "html")
        identities = [element.get("id") for element in root.iter() if element.get("id")]
        self.assertEqual(len(identities), len(set(identities)))
        for element in root.iter():
            name = element.tag.split("}")[1]
            self.assertNotIn(name, ("script", "link", "img", "image", "iframe", "object", "embed", "use", "base"))
            for attribute, value in element.attrib.items():
                self.assertNotIn(attribute, LOADING)
                self.assertFalse(attribute.startswith("on"), attribute)
                if attribute.endswith("href"):
                    self.assertIn(value[1:], identities, value)
        style = root.find(f"{HTML}head/{HTML}style").text
        for word in ("url(", "@import", "http"):
            self.assertNotIn(word, style)
        return root

    def report(self, *arguments):
        self.hone("report", "-o", self.page, *arguments)
        with open(self.page, encoding="utf-8") as file:
            return self.parse(file.read())

    def rows(self, root):
        """Of the cache by class: their cells' texts, by what the kernel is."""
        rows = {}
        for row in root.iter(HTML + "tr"):
            if row.get("id"):
                cells = ["".join(cell.itertext()) for cell in row.iter(HTML + "td")]
                rows[cells[1]] = cells
        return rows

    def test_an_empty_cache(self):
        self.start()
        root = self.report()
        self.assertIn("The cache holds no kernels yet", "".join(root.itertext()))
        self.assertIn(self.directory.cache, "".join(root.itertext()))

    def test_kernels_their_states_and_curves(self):
        self.start()
        tuned = "softmax(M=64,N=200,threads=1)"
        end = self.hone_json("tune", tuned, "--trials", "24", "--seed", "3")[-1]
        pinned = self.hone_json("get", small(7))[0]
        self.hone("pin", pinned["fingerprint"])
        self.hone("get", SMALL)
        self.hone("get", SMALL)
        root = self.report()
        rows = self.rows(root)
        self.assertEqual(sorted(rows), sorted([tuned, small(7), SMALL]))
        self.assertEqual(rows[tuned][2], end["origin"])
        self.assertEqual(rows[small(7)][2], "default, pinned")
        self.assertEqual(rows[SMALL][2], "default")
        classes = [element.text for element in root.iter(HTML + "code")]
        for name in ("softmax", "matmul", "add"):
            self.assertIn(name, classes)
        fingerprints = {row["fingerprint"] for row in self.hone_json("ls")}
        shown = {cell.get("title") for row in root.iter(HTML + "tr") if row.get("id") for cell in row}
        self.assertLessEqual(fingerprints, shown)
        plots = [element.get("class") for element in root.iter(SVG + "svg")]
        if end["valid"] > 0:  # a machine that is never quiet times nothing
            self.assertEqual(plots.count("curve"), 1)
        captions = ["".join(caption.itertext()) for caption in root.iter(HTML + "figcaption")]
        self.assertTrue(any(tuned in caption and "24 trials" in caption for caption in captions) or end["valid"] == 0)
        self.assertEqual(plots.count("wide"), plots.count("narrow"))
        self.assertGreaterEqual(plots.count("wide"), 1)

    def test_hostile_texts_are_texts(self):
        self.start()
        path = os.path.join(self.directory.path, "bad.hone")
        words = "</style><script>alert('1' & \"2\")</script>"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"# {words}\nkernel evil(x: f32[N]) -> y: f32[N] where N=33 {{\n  y[i] = if(x[i] < 1, 2, 3)\n}}\n")
        self.hone("get", path)
        rows = self.rows(self.report())
        self.assertEqual(len(rows), 1)
        self.assertIn("if(x[i] < 1, 2, 3)", next(iter(rows)))
        self.assertNotIn("script", next(iter(rows)))  # comments are not kept

    def test_to_standard_output(self):
        self.start()
        self.hone("get", SMALL)
        self.assertEqual(list(self.rows(self.parse(self.hone("report", "-o", "-")))), [SMALL])
        self.assertEqual(self.last_error, "")
        self.hone("--json", "report", "--out", "-", status=2)
        self.hone("report", status=2)
        with open("/dev/full", "wb") as full:
            done = subprocess.run([os.path.join(harness.BIN, "hone"), "--no-start", "report", "-o", "-"], stdout=full,
                                  stderr=subprocess.PIPE, env=self.directory.environment, check=False, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_a_file_is_replaced_whole_or_not_at_all(self):
        self.start()
        self.hone("get", SMALL)
        line = self.hone_json("report", "-o", self.page)[0]
        self.assertEqual((line["file"], line["kernels"], line["bytes"]), (self.page, 1, os.path.getsize(self.page)))
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE(os.stat(self.page).st_mode), 0o666 & ~mask)
        self.hone("report", "-o", self.directory.path, status=1)
        self.assertIn("is a directory", self.last_error)
        missing = os.path.join(self.directory.path, "none", "report.html")
        self.hone("report", "-o", missing, status=1)
        self.assertIn(missing, self.last_error)
        # What is no file stays what it is.
        pipe = os.path.join(self.directory.path, "pipe")
        os.mkfifo(pipe)
        self.hone("report", "-o", pipe, status=1)
        self.assertIn("no regular file", self.last_error)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        # A link stays a link.
        link = os.path.join(self.directory.path, "link.html")
        os.symlink(self.page, link)
        with open(self.page, "w", encoding="utf-8") as file:
            file.write("old")
        self.hone("report", "-o", link)
        self.assertTrue(os.path.islink(link))
        with open(self.page, encoding="utf-8") as file:
            self.parse(file.read())
        self.assertEqual([name for name in os.listdir(self.directory.path) if name.startswith("report.html.")], [])

    def test_without_a_daemon_nothing_is_written(self):
        with open(self.page, "w", encoding="utf-8") as file:
            file.write("old")
        error = self.hone_json("report", "-o", self.page, status=1)[0]["error"]
        self.assertEqual(error["kind"], "unavailable")
        with open(self.page, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_of_a_cache_without_a_daemon(self):
        daemon = self.start()
        self.hone("get", SMALL)
        self.assertEqual(daemon.stop(), 0)
        self.hone("--cache", self.directory.cache, "report", "-o", self.page)
        with open(self.page, encoding="utf-8") as file:
            self.assertEqual(list(self.rows(self.parse(file.read()))), [SMALL])


if __name__ == "__main__":
    unittest.main(verbosity=2)
