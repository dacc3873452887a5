"""Clients that ask and do not read: they fill their own share, and others are answered as if they were not there."""

import os
import time

import harness
import hostile_texts
import protocol_grammar
from actors import Actor, quantile
from harness import GET_REPLY, SMALL, get_frame
from protocol_grammar import request


class StalledReaders(harness.HoneTest):
    def test_code_that_is_not_taken(self):
        daemon = self.start(prepare=harness.be_limited)
        self.assert_served()
        before = daemon.open_descriptors()
        honest = Actor(self, "hits")
        stalled = Actor(self, "slow_reader", connections=200)
        time.sleep(4)
        report = stalled.finish()
        time.sleep(1)
        seen = honest.finish()
        refused = len(seen["problems"])
        print(f"{refused} of {len(seen['hits'])} hits refused, p99 {quantile(seen['hits'], 0.99):.1f} ms, "
              f"{report['dropped']} dropped", flush=True)
        self.assertGreater(len(seen["hits"]), 500)
        self.assertEqual(seen["problems"][:3], [])
        self.wait_until(lambda: daemon.open_descriptors() <= before + 2)

    def test_code_that_is_not_taken_by_clients_that_stay(self):
        """The connections are dropped, and their clients keep their ends open."""
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[server]\nstall_time = "1s"\n')
        self.start("--config", self.directory.config, prepare=harness.be_limited)
        self.assert_served()
        stalled = []
        self.addCleanup(lambda: [client.close() for client in stalled])
        for _ in range(200):
            client = self.raw()
            stalled.append(client)
            try:
                client.send(b"".join(get_frame(SMALL, number + 1) for number in range(64)))
            except harness.Gone:  # more than one client's share of connections
                break
        self.assertGreater(len(stalled), 100)
        time.sleep(2.5)
        honest = Actor(self, "hits")
        time.sleep(1.5)
        seen = honest.finish()
        print(f"{len(seen['problems'])} of {len(seen['hits'])} hits refused afterwards", flush=True)
        self.assertGreater(len(seen["hits"]), 100)
        self.assertEqual(seen["problems"][:3], [])

    def test_who_reads_again_gets_everything(self):
        self.start(prepare=harness.be_limited)
        self.assert_served()
        with self.raw() as client:
            for number in range(60):
                client.send(get_frame(SMALL, number + 1))
            time.sleep(0.5)
            ids = set()
            for _ in range(60):
                kind, request_id, body, descriptors = client.receive()
                self.assertEqual((kind, len(descriptors)), (GET_REPLY, 1), body)
                for descriptor in descriptors:
                    os.close(descriptor)
                ids.add(request_id)
            self.assertEqual(ids, set(range(1, 61)))


class StalledLists(harness.HoneTest):
    """`ls` that nobody reads, and what it may cost the others."""

    def setUp(self):
        super().setUp()
        self.start()

    def ask(self, client, name, **values):
        """(milliseconds, the reply)"""
        begun = time.monotonic()
        client.send(request(name, **values))
        try:
            kind, _, body, _ = client.receive()
        except TimeoutError:
            self.fail(f"{name}: no answer in {client.socket.gettimeout()} s")
        self.assertNotEqual(kind, harness.ERROR, body)
        return (time.monotonic() - begun) * 1000, protocol_grammar.decode(name.replace("Request", "Reply"), body)

    def test_lists_that_nobody_reads_and_large_texts(self):
        """Many kernels with a comment of half a megabyte each: no reply could hold them all."""
        texts = [hostile_texts.with_comment(hostile_texts.wordy(number, 3500), 530_000) for number in range(135)]
        with self.raw() as client:
            client.socket.settimeout(60)
            for number, kernel in enumerate(texts):
                client.send(get_frame(kernel, number + 1, no_artifact=True))
                if number >= 4:  # some at a time, for as many builders
                    self.assertEqual(client.receive()[0], GET_REPLY)
            for _ in range(4):
                self.assertEqual(client.receive()[0], GET_REPLY)
        stalled = [Actor(self, "slow_lister") for _ in range(2)]
        time.sleep(1)
        with self.raw() as client:
            taken = [self.ask(client, name)[0] for name in ("StatusRequest", "StatsRequest", "TopRequest") * 5]
            ms, shown = self.ask(client, "ListRequest")
            self.assertGreater(len(shown["rows"]), 10)
            fingerprint = shown["rows"][0]["fingerprint"]
        with self.raw() as client:
            taken += [self.ask(client, "EditRequest", action=action, fingerprint=fingerprint)[0] for action in (2, 3)]
        print(f"status, stats, top, pin: {max(taken):.0f} ms at most; a list: {ms:.0f} ms", flush=True)
        self.assertLess(max(taken), 1000)
        self.assertEqual(len(self.hone_json("ls", limit=30)), len(texts))
        self.hone("report", "-o", os.path.join(self.directory.path, "report.html"), limit=60)
        for each in stalled:
            self.assertEqual(each.finish()["problems"], [])
        with self.raw() as client:  # in parts of some size
            client.send(request("ListRequest"))
            more = True
            while more:
                kind, _, body, _ = client.receive()
                self.assertEqual(kind, protocol_grammar.NUMBERS["ListReply"], body[:200])
                self.assertLess(len(body), 3 << 20)
                more = protocol_grammar.decode("ListReply", body)["more"]


if __name__ == "__main__":
    harness.main()
