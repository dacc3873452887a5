"""Models: served, run as whole networks, checked, and said no to."""

import json
import os
import socket
import threading

import harness

MODELS = os.path.join(harness.SOURCE, "tests/fuzz/corpus/onnx")
IN_PARTS = ["selected_rows.onnx"]  # what they compute decides shapes
NAMES = sorted(set(os.listdir(MODELS)) - set(IN_PARTS))


def path(name):
    return os.path.join(MODELS, name + ".onnx")


class Models(harness.HoneTest):
    def test_warm_serves_every_kernel(self):
        self.start()
        *lines, summary = self.hone_json("warm", path("attention"))
        self.assertEqual(summary["kernels"], len(lines))
        self.assertEqual(summary["calls"], sum(line["count"] for line in lines))
        self.assertEqual((summary["failed"], summary["left_out"]), (0, []))
        expected = sum(line["count"] * line["expected_us"] for line in lines)
        self.assertAlmostEqual(summary["expected_us"], expected, delta=expected * 1e-6)
        self.assertIn("matmul(M=5,N=12,K=8,const=1)+bias+gelu", [line["kernel"] for line in lines])
        *_, again = self.hone_json("warm", path("attention"))
        self.assertEqual(again["hits"], again["kernels"])

    def test_run_checks_whole_networks(self):
        self.start()
        for name in NAMES:
            with self.subTest(name):
                out = self.hone_json("run", os.path.join(MODELS, name), "--repeat", "3", "--threads", "2")[0]
                self.assertTrue(out["verified"])
                self.assertLessEqual(out["difference"], out["tolerance"])
                self.assertLessEqual(out["arena_bytes"], out["values_bytes"])
                self.assertGreater(out["time_us"], 0)
                self.assertEqual(out["calls"], sum(share["calls"] for share in out["shares"]))
        text = self.hone("run", path("squeeze_excite"), "--repeat", "3")
        self.assertIn("verified", text)

    def test_networks_may_be_less_accurate(self):
        self.start()
        for name in ("squeeze_excite", "attention"):
            strict = self.hone_json("run", path(name), "--repeat", "3")[0]
            for accuracy in ("relaxed", "fast"):
                out = self.hone_json("run", path(name), "--repeat", "3", "--accuracy", accuracy)[0]
                self.assertTrue(out["verified"])
                self.assertGreater(out["tolerance"], strict["tolerance"])
        kernels = self.hone_json("warm", path("squeeze_excite"), "--accuracy", "fast")
        self.assertTrue(any("accuracy=fast" in row.get("kernel", "") for row in kernels), kernels)
        error = self.hone_json("run", path("attention"), "--accuracy", "exact", status=2)[0]["error"]
        self.assertEqual((error["where"], error["message"]), ("--accuracy", "wanted strict, relaxed or fast"))
        for command in ("run", "warm", "tune"):
            self.hone_json(command, "add(M=1,N=1)", "--accuracy", "fast", status=2)

    def test_run_checks_whole_networks_on_other_devices(self):
        self.start()
        targets = self.hone_json("status")[0]["targets"]
        here = [target for target in targets if " unchecked=" not in target]  # others are compiled for alone
        kinds = sorted({target.split()[0] for target in here} - {"cpu"})
        for kind in {"opencl", "vulkan"} - set(kinds):
            harness.check_want_of(kind, "honed serves none")
        if not kinds:
            self.skipTest("[SKIP] no OpenCL or Vulkan device is installed (Debian: pocl-opencl-icd, mesa-vulkan-drivers)")
        # Parts of concatenations that begin anywhere, values in other shapes, work without a kernel, packed weights, a
        # kernel that honed refuses for such devices, sums of bytes.
        for kind in kinds:
            for name in ("attention", "dense_blocks", "movement", "powers", "quantised_convolutions"):
                with self.subTest(kind + " " + name):
                    out = self.hone_json("run", path(name), "--repeat", "1", "--target", kind + ":0")[0]
                    self.assertTrue(out["verified"])
                    self.assertLessEqual(out["difference"], out["tolerance"])
                    if name == "quantised_convolutions":
                        self.assertEqual([share for share in out["shares"] if "no_kernel" in share], [])

    def test_run_checks_networks_in_parts(self):
        self.start()
        for name in IN_PARTS:
            with self.subTest(name):
                model = os.path.join(MODELS, name)
                out = self.hone_json("run", model, "--repeat", "20")[0]
                self.assertTrue(out["in_parts"] and out["verified"])
                self.assertGreater(out["compared"], 0)
                self.assertLessEqual(out["difference"], out["tolerance"])
                self.assertGreater(out["time_us"], 0)
                shares = out["shares"]
                self.assertGreater(sum(share["time_us"] for share in shares), 0)
                self.assertTrue(any("no_kernel" in share for share in shares), shares)
                self.assertIn("on the host: ", text := self.hone("run", model, "--repeat", "1"))
                self.assertIn("verified", text)
                checked = self.hone_json("check", model)[0]
                self.assertEqual([value["name"] for value in checked["outputs"]], [value["name"] for value in out["outputs"]])
                self.hone("run", model, "--against", path("attention"), status=None)
                self.assertNotEqual(self.last_status, 0)
                self.assertIn("runs in parts", self.last_error)
                *lines, summary = self.hone_json("warm", model)
                self.assertGreater(len(lines), 0)
                self.assertGreater(summary["nodes_decided_later"], 0)
                self.assertIn("kernels for them are made when it runs", self.last_error)

    def test_run_exports_what_went_in_and_came_out(self):
        self.start()
        directory = os.path.join(self.directory.path, "exported")
        self.hone("run", path("dense_blocks"), "--repeat", "1", "--export", directory)
        with open(os.path.join(directory, "tensors.json"), encoding="utf-8") as file:
            tensors = json.load(file)["tensors"]
        self.assertEqual([(each["role"], each["name"], each["shape"]) for each in tensors],
                         [("input", "x", [1, 3, 4, 4]), ("output", "cat2", [1, 7, 4, 4]), ("output", "cat3", [1, 5, 4, 4])])
        for each in tensors:
            size = 4
            for extent in each["shape"]:
                size *= extent
            self.assertEqual(os.path.getsize(os.path.join(directory, each["file"])), size)
        self.assertTrue(self.hone_json("run", os.path.join(directory, "model.onnx"), "--repeat", "1")[0]["verified"])

    def test_check_tells_of_a_daemon_that_refuses_every_kernel(self):
        os.makedirs(os.path.dirname(self.directory.socket), mode=0o700, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        listener.bind(self.directory.socket)
        listener.listen()

        def refuse():
            said = bytes([3]) + harness.text("no kernel pleases") + harness.text("kernel") + bytes(4)  # kUnsupported
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:  # closed
                    return
                with peer, peer.makefile("rb") as frames:
                    while header := frames.read(harness.HEADER.size):
                        _, _, _, request, length = harness.HEADER.unpack(header)
                        frames.read(length)
                        peer.sendall(harness.frame(harness.ERROR, said, request))
        threading.Thread(target=refuse, daemon=True).start()
        missing = self.hone_json("check", path("attention"), status=1)[0]["missing"]
        self.assertEqual([(cause["op"], cause["nodes"]) for cause in missing], [("kernel", [])])
        told = self.hone("check", path("attention"), status=1)
        self.assertRegex(told, r"runs +NO\n")
        self.assertIn("honed refuses all kernels: kernel: no kernel pleases", told)

    def test_check_tells_whether_models_run(self):
        self.start()
        whole = self.hone_json("check", path("attention"))[0]
        self.assertTrue(whole["runs"])
        self.assertEqual((whole["missing"], whole["host_calls"]), ([], 0))
        self.assertEqual((whole["expected_us"], whole["expected_kernels"], whole["served_kernels"]), (0, 0, 0))
        self.assertGreater(whole["flops"], 0)
        served = self.hone_json("warm", path("attention"))[-1]
        self.assertEqual((whole["kernels"], whole["kernel_calls"]), (served["kernels"], served["calls"]))
        # What ran here is known without a cost model.
        known = self.hone_json("check", path("attention"))[0]
        self.assertEqual((known["expected_kernels"], known["served_kernels"]), (known["kernels"], known["kernels"]))
        self.assertAlmostEqual(known["expected_us"], served["expected_us"], delta=served["expected_us"] * 1e-6)
        self.assertIn("runs", self.hone("check", path("attention")))
        self.assertEqual(whole["weights"], [])
        structure = os.path.join(harness.SOURCE, "tests/zoo/recurrent.gru_classifier.script.onnx")
        self.assertIn("look like weights: --data NAME", " ".join(self.hone("check", structure).split()))
        damaged = os.path.join(self.directory.path, "damaged.onnx")
        with open(damaged, "wb") as file:
            file.write(b"\x08damaged")
        self.assertIn("1 of 2 models run", self.hone("check", path("attention"), damaged, status=1))
        self.assertEqual(self.hone_json("check", damaged, status=1)[0]["error"]["kind"], "corrupt")

    def test_bad_files(self):
        self.start()
        damaged = os.path.join(self.directory.path, "damaged.onnx")
        with open(path("attention"), "rb") as file:
            data = file.read()
        with open(damaged, "wb") as file:
            file.write(data[:len(data) // 2])
        for command in ("warm", "run", "tune"):
            error = self.hone_json(command, damaged, status=1)[0]["error"]
            self.assertEqual(error["kind"], "corrupt")
            self.assertIn("damaged.onnx", error["where"])
        self.assertEqual(self.hone_json("warm", "absent.onnx", status=1)[0]["error"]["kind"], "not_found")
        self.hone_json("warm", path("attention"), "--shape", "ids", status=2)
        error = self.hone_json("warm", path("attention"), "--shape", "ids=1x6", status=1)[0]["error"]
        self.assertIn("shape 1x6, wanted 1x5", error["message"])


if __name__ == "__main__":
    harness.main()
