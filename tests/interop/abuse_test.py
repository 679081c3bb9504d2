# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: no client that breaks or strains HTTP/2 stops the server from serving others, or leaves anything behind.
Method: frames by hand against a real server process. After each test a right request works over another connection, and
the process has the sockets and about the memory that it had before."""
import gzip
import os
import pathlib
import tempfile
import time
import unittest

import grpc
import numpy as np
from hyperframe import frame as frames
from tritonclient.grpc import service_pb2, service_pb2_grpc

import raw_http2
import server_process
from raw_http2 import Connection, grpc_message

SERVER_BINARY = None
MODEL = "mlp_regressor_skl21"
MESSAGE_LIMIT = 1 << 20
ENHANCE_YOUR_CALM = 11
GRACE_SECONDS = 60


def request(rows=1):
    message = service_pb2.ModelInferRequest(model_name=MODEL)
    message.inputs.add(name="X", datatype="FP32", shape=[rows, 20])
    message.raw_input_contents.append(np.linspace(0, 1, rows * 20, dtype=np.float32).tobytes())
    return message


class AbuseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.symlink(server_process.ROOT / "tests" / "models" / "small" / MODEL, pathlib.Path(cls.folder.name) / MODEL)
        # What malloc keeps of memory that was freed depends on which of its arenas gRPC's threads use: one is enough.
        environment = dict(os.environ, ASAN_OPTIONS="quarantine_size_mb=16", MALLOC_ARENA_MAX="1")
        cls.server = server_process.ServerProcess(SERVER_BINARY, "--max-message-bytes", str(MESSAGE_LIMIT),
                                                  repository=cls.folder.name, environment=environment)
        cls.channel = grpc.insecure_channel(cls.server.grpc)
        cls.stub = service_pb2_grpc.GRPCInferenceServiceStub(cls.channel)
        cls.right = cls.stub.ModelInfer(request()).raw_output_contents[0]

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        code = cls.server.stop()
        cls.folder.cleanup()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{cls.server.log()}")

    def setUp(self):
        self.served()
        self.connections = []
        self.sockets, self.resident = self.open_sockets(), self.resident_mib()

    def tearDown(self):
        self.served()
        for connection in self.connections:
            connection.close()
        self.eventually(lambda: self.open_sockets() <= self.sockets, "sockets are still open")
        self.assertLess(self.resident_mib(), self.resident * 1.25 + 64)

    def open_sockets(self):
        """Not all descriptors: gRPC makes itself events when threads first meet, and keeps them."""
        count = 0
        for entry in os.scandir(f"/proc/{self.server.process.pid}/fd"):
            try:
                count += os.readlink(entry.path).startswith("socket:")
            except FileNotFoundError:
                pass  # closed meanwhile
        return count

    def resident_mib(self):
        pages = int(pathlib.Path(f"/proc/{self.server.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def served(self):
        """A right request over another connection."""
        self.assertEqual(self.stub.ModelInfer(request(), timeout=GRACE_SECONDS).raw_output_contents[0], self.right)

    def eventually(self, condition, what):
        end = time.monotonic() + GRACE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            os.sched_yield()

    def connect(self, **options):
        connection = Connection(self.server.grpc, **options)
        self.connections.append(connection)
        return connection

    def assertRight(self, fields, data):
        self.assertIsNotNone(fields)
        self.assertEqual(fields.get("grpc-status"), "0", fields)
        answer = service_pb2.ModelInferResponse.FromString(data[5:])
        self.assertEqual(answer.raw_output_contents[0], self.right)

    def flood(self, connection, chunk, count):
        """Sends `chunk` so often, or until the server has closed or takes no more."""
        connection.socket.settimeout(2)
        for _ in range(count):
            try:
                connection.socket.sendall(chunk)
            except OSError:
                return

    # The connection as such.

    def test_garbage_instead_of_the_preface(self):
        for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                        b"\0" * 1000, raw_http2.PREFACE[:-1] + b"X", raw_http2.PREFACE + b"\xff" * 100,
                        bytes(range(256)) * 400):
            with self.subTest(garbage[:24]):
                connection = self.connect(hello=False)
                self.flood(connection, garbage, 1)
                connection.socket.settimeout(GRACE_SECONDS)
                connection.read_to_end()
                connection.close()

    def test_connections_that_say_nothing(self):
        connections = [self.connect(hello=False) for _ in range(200)]
        self.served()
        for connection in connections:
            connection.close()

    def test_ping_flood_is_cut(self):
        connection = self.connect()
        self.flood(connection, frames.PingFrame(0, opaque_data=b"flooding").serialize() * 100, 1000)
        connection.socket.settimeout(GRACE_SECONDS)
        goaway = connection.read_to_end()
        if goaway is not None:  # a reset may have overtaken it
            self.assertEqual(goaway.error_code, ENHANCE_YOUR_CALM)

    def test_settings_flood(self):
        connection = self.connect()
        settings = frames.SettingsFrame(0, settings={frames.SettingsFrame.INITIAL_WINDOW_SIZE: 65535}).serialize()
        self.flood(connection, settings * 100, 1000)
        self.served()
        connection.close()

    def test_frames_of_unknown_and_wrong_kind(self):
        unknown = frames.ExtensionFrame(0xEE, 0, flag_byte=0, body=b"x" * 100)
        update = frames.WindowUpdateFrame(0, window_increment=1)
        for what in (unknown.serialize() * 1000, frames.DataFrame(1, data=b"x").serialize(),
                     frames.RstStreamFrame(7).serialize(), update.serialize() * 1000,
                     frames.PushPromiseFrame(1, promised_stream_id=2, data=b"").serialize(),
                     b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"):  # DATA of 16 MiB, more than the server allows
            with self.subTest(what[:16]):
                connection = self.connect()
                self.flood(connection, what, 1)
                self.served()
                connection.close()

    # Headers.

    def test_rapid_reset(self):
        connection = self.connect()
        for stream in range(1, 20_001, 2):
            try:
                connection.send(connection.headers(stream), frames.RstStreamFrame(stream, error_code=8))
            except OSError:
                break  # cut: as good
        self.served()
        connection.close()

    def test_rapid_reset_of_whole_requests(self):
        connection = self.connect()
        body = grpc_message(request(4).SerializeToString())
        for stream in range(1, 10_001, 2):
            try:
                connection.send(connection.headers(stream), connection.data(stream, body),
                                frames.RstStreamFrame(stream, error_code=8))
            except OSError:
                break
        self.served()
        connection.close()

    def test_headers_that_never_end(self):
        field = b"\x00\x01x" + b"\x7f\x80\x7e" + b"v" * 16_255  # a literal of 16,255 bytes
        for number in range(3):
            connection = self.connect()
            connection.send(frames.HeadersFrame(1, data=b"", flags=[]))
            self.flood(connection, frames.ContinuationFrame(1, data=field).serialize(), 5000)
            self.served()
            connection.close()
            if number == 0:  # gRPC keeps all 80 MB until the connection ends, and malloc does for longer
                self.resident = self.resident_mib()
        self.sockets += 3  # now and then gRPC 1.51 keeps the socket of such a connection; SECURITY.md

    def test_header_that_refers_to_a_long_one(self):
        """Each byte of the block stands for 4,000 bytes of a header."""
        connection = self.connect()
        block = connection.encoder.encode([(":method", "POST"), ("x-long", "v" * 4000)])
        block += b"\xbe" * 10_000
        self.flood(connection, frames.HeadersFrame(1, data=block, flags=["END_HEADERS"]).serialize(), 1)
        self.served()
        connection.close()

    # Bodies.

    def test_body_in_frames_of_one_byte(self):
        connection = self.connect()
        body = grpc_message(request().SerializeToString())
        connection.send(connection.headers(1))
        for at in range(len(body)):
            connection.send(connection.data(1, body[at:at + 1], end_stream=at == len(body) - 1))
        self.assertRight(*connection.answer(1))

    def test_body_among_empty_frames(self):
        connection = self.connect()
        body = grpc_message(request().SerializeToString())
        connection.send(connection.headers(1))
        connection.send(*[connection.data(1, b"", end_stream=False)] * 1000)
        connection.send(connection.data(1, body))
        self.assertRight(*connection.answer(1))

    def test_bodies_half_sent(self):
        body = grpc_message(request(1000).SerializeToString())
        for _ in range(20):
            connection = self.connect()
            for stream in range(1, 41, 2):
                connection.send(connection.headers(stream),
                                connection.data(stream, body[:len(body) // 40], end_stream=False))
            self.served()
            connection.close()

    def test_readers_that_do_not_read(self):
        """With a window of 0 no byte of an answer may be sent."""
        settings = {frames.SettingsFrame.INITIAL_WINDOW_SIZE: 0}
        connections = [self.connect(settings=settings) for _ in range(10)]
        body = grpc_message(request().SerializeToString())
        for connection in connections:
            for stream in range(1, 101, 2):
                connection.send(connection.headers(stream), connection.data(stream, body))
        for _ in range(20):
            self.served()
        for connection in connections:
            connection.close()

    # Calls that no gRPC library makes.

    def call(self, body, **headers):
        """The status and its message; (None, None) when the stream was cut. `body` fits a stream's first window."""
        with self.connect() as connection:
            pieces = [body[at:at + 16_384] for at in range(0, len(body), 16_384)]
            connection.send(connection.headers(1, end_stream=not pieces, **headers))
            for number, piece in enumerate(pieces):
                connection.send(connection.data(1, piece, end_stream=number == len(pieces) - 1))
            fields, _ = connection.answer(1)
            return (None, None) if fields is None else (fields["grpc-status"], fields.get("grpc-message", ""))

    def test_bad_messages(self):
        right = request().SerializeToString()
        served, unknown, late, not_found, exhausted, internal, cut = "0", "2", "4", "5", "8", "13", None
        gzipped = {"extra": [("grpc-encoding", "gzip")]}
        parse = "Unable to parse request"
        table = [
            ("no message at all", b"", {}, internal, parse),
            ("a length of 4 GiB", grpc_message(b"", length=0xFFFFFFFF), {}, internal, parse),
            ("ends inside the prefix", b"\0\0\0", {}, internal, parse),
            ("ends inside the message", grpc_message(right, length=len(right) + 1), {}, internal, parse),
            ("an empty message", grpc_message(b""), {}, not_found, "unknown model"),
            ("two messages", grpc_message(right) * 2, {}, served, ""),  # the second is not looked at
            ("compressed by nothing", grpc_message(right, compressed=1), {}, served, ""),
            ("unknown compression", grpc_message(right, compressed=1), {"extra": [("grpc-encoding", "brotli")]},
             served, ""),
            ("gzip that is right", grpc_message(gzip.compress(right), compressed=1), gzipped, served, ""),
            ("gzip that is none", grpc_message(right, compressed=1), gzipped, cut, None),
            ("gzip that is cut", grpc_message(gzip.compress(right)[:-9], compressed=1), gzipped, cut, None),
            ("gzip that grows beyond the limit", grpc_message(gzip.compress(b"\0" * (16 << 20)), compressed=1), gzipped,
             exhausted, "larger than max"),
            ("GET", grpc_message(right), {"extra": [(":method", "GET")]}, unknown, "Bad method header"),
            ("no path", grpc_message(right), {"without": [":path"]}, unknown, "Missing :path header"),
            ("a time limit of nothing", grpc_message(right), {"extra": [("grpc-timeout", "0n")]}, late, "Deadline"),
        ]
        for what, body, headers, status, words in table:
            with self.subTest(what):
                got, message = self.call(body, **headers)
                self.assertEqual(got, status, message)
                if words:
                    self.assertIn(words, message)

    def test_message_with_a_flag_that_is_none(self):
        """gRPC ends the stream, and may do so before the call is seen or after."""
        status, message = self.call(grpc_message(request().SerializeToString(), compressed=2))
        self.assertIn(status, (None, "5", "13"), message)


if __name__ == "__main__":
    server_process.main(__name__)
