"""What Prometheus sees of a running honed: over its socket by `hone stats --prometheus`, and on a port of the loopback."""
import http.client
import os
import re
import socket
import time

import harness
from harness import SMALL

SAMPLE = re.compile(r'^hone_[a-z0-9_]+(\{[a-z]+="[^"\\\n]*"\})? (-?[0-9.]+(e[-+]?[0-9]+)?)$')


def samples(text):
    """By name and labels. Every line is a sample or a type, every name has one type, and its samples stand together."""
    values, types, name = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types, line
            assert kind in ("counter", "gauge", "summary"), line
            types[name] = kind
            continue
        found = SAMPLE.match(line)
        assert found, line
        key, value = line.rsplit(" ", 1)
        assert key.split("{")[0].removesuffix("_count") == name or key.split("{")[0] == name, line
        assert key not in values, line
        values[key] = float(value)
    return values


class Metrics(harness.HoneTest):
    def serve(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write(f'[metrics]\nlisten = "127.0.0.1:{self.port}"\n')
        return self.start("--config", self.directory.config)

    def fetch(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        return samples(text)

    def test_both_ways_tell_the_same(self):
        self.serve()
        self.hone("get", SMALL)
        by_socket, by_port = samples(self.hone("stats", "--prometheus")), self.fetch()
        self.assertEqual(by_socket.keys(), by_port.keys())
        for name in ("hone_misses_total", "hone_miss_seconds_count", 'hone_family_entries{family="records"}'):
            self.assertEqual((by_socket[name], by_port[name]), (1, 1), name)
        self.assertLess(0.0001, by_port['hone_miss_seconds{quantile="0.5"}'])
        self.assertLess(by_port['hone_miss_seconds{quantile="0.5"}'], 60)
        self.assertEqual(len(by_port), len(self.hone_json("stats")[0]))

    def test_who_stalls_keeps_neither_a_fetch_nor_a_client_waiting(self):
        daemon = self.serve()
        descriptors = daemon.open_descriptors()
        slow = []
        for i in range(100):
            slow.append(socket.create_connection(("127.0.0.1", self.port)))
            if i % 2:
                slow[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 20)
        begun = time.monotonic()
        self.assertEqual(self.fetch()["hone_misses_total"], 0)
        self.assert_served()
        self.assertLess(time.monotonic() - begun, 5)
        self.assertLessEqual(daemon.open_descriptors(), descriptors + 40)
        for each in slow:
            each.close()

    def test_nothing_listens_unless_it_is_asked_for_and_only_the_loopback_is_taken(self):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[metrics]\nlisten = "0.0.0.0:9464"\n')
        daemon = self.start("--config", self.directory.config, wait=False)
        self.assertEqual(daemon.process.wait(20), 1)
        self.assertIn("no port of the loopback", daemon.log())
        daemon = self.start()
        self.assert_served()
        with open(f"/proc/{daemon.pid}/net/tcp", encoding="ascii") as file:
            listening = {line.split()[9] for line in file.readlines()[1:] if line.split()[3] == "0A"}

        own = {os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon.pid}/fd")}
        self.assertEqual({inode for inode in listening if f"socket:[{inode}]" in own}, set())

    def test_a_port_that_is_taken_is_said(self):
        daemon = self.serve()
        with open(self.directory.config, "a", encoding="utf-8") as file:
            file.write(f'[server]\nsocket = "{self.directory.path}/run/other.sock"\n'
                       f'[cache]\ndirectory = "{self.directory.path}/other"\n')
        second = self.start("--config", self.directory.config, wait=False)
        self.assertEqual(second.process.wait(20), 1)
        self.assertIn("cannot listen for metrics", second.log())
        self.assertIsNone(daemon.process.poll())


if __name__ == "__main__":
    harness.main()
