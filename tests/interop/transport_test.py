# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: TLS, restricted protocols, the latency port and the Unix socket work with existing clients, and neither a storm of
connections nor clients that hang keep the server from being restarted. Method: tritonclient, the health check and plain
sockets against real server processes."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np
import tritonclient.grpc as tritonclient
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import server_process

SERVER_BINARY = None
MODELS = server_process.ROOT / "models"


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)


def healthcheck(*flags):
    """Whether `sluice-server healthcheck` says that the server is ready."""
    return run(SERVER_BINARY, "healthcheck", *flags).returncode == 0


def infer(client, model="filetype", **options):
    data = np.random.RandomState(1).randint(0, 257, size=(1, 2048)).astype(np.int32)
    tensor = tritonclient.InferInput("bytes", [1, 2048], "INT32")
    tensor.set_data_from_numpy(data)
    return client.infer(model, [tensor], **options)


class Certificates:
    """A root, and pairs that it signed, in a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._san = self.folder / "san"
        self._san.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._openssl("req", "-x509", *self._new_key("root"), "-out", self.path("root.pem"), "-days", "1", "-subj", "/CN=root")

    def path(self, name):
        return self.folder / name

    def issue(self, name):
        self._openssl("req", *self._new_key(name), "-out", self.path(f"{name}.csr"), "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("root.pem"), "-CAkey",
                      self.path("root.key"), "-CAcreateserial", "-days", "1", "-extfile", self._san, "-out",
                      self.path(f"{name}.pem"))

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(f"{name}.key"))

    @staticmethod
    def _openssl(*arguments):
        made = run("openssl", *arguments)
        if made.returncode != 0:
            raise RuntimeError(made.stderr)


class TransportTest(unittest.TestCase):
    def start(self, *flags, models=("filetype",), **options):
        """A server of these models, which is killed at the end of the test unless the test stopped it."""
        repository = pathlib.Path(self.folder())
        for model in models:
            (repository / model).symlink_to(MODELS / model)
        server = server_process.ServerProcess(SERVER_BINARY, *flags, repository=repository, **options)

        def end():
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
            server.process.stdout.close()
        self.addCleanup(end)
        return server

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def connect(self, address, **options):
        client = tritonclient.InferenceServerClient(address, **options)
        self.addCleanup(client.close)
        return client

    def assertUnavailable(self, call):
        with self.assertRaises(InferenceServerException) as caught:
            call()
        self.assertEqual(caught.exception.status(), "StatusCode.UNAVAILABLE")

    def test_tls(self):
        certificates = Certificates(self.folder())
        certificates.issue("server")
        certificates.issue("client")
        path = certificates.path
        server = self.start("--grpc-use-ssl-mutual=1", "--grpc-server-cert", str(path("server.pem")),
                            "--grpc-server-key", str(path("server.key")), "--grpc-root-cert", str(path("root.pem")))
        port = server.ready["grpc_port"]
        shown = {"certificate_chain": str(path("client.pem")), "private_key": str(path("client.key"))}
        client = self.connect(server.grpc, ssl=True, root_certificates=str(path("root.pem")), **shown)
        self.assertTrue(client.is_server_ready())
        self.assertEqual(infer(client).as_numpy("target_label").shape, (1, 214))
        nobody = self.connect(server.grpc, ssl=True, root_certificates=str(path("root.pem")))
        self.assertUnavailable(nobody.is_server_ready)
        self.assertUnavailable(self.connect(server.grpc).is_server_ready)

        self.assertFalse(healthcheck("--grpc-port", port))
        self.assertFalse(healthcheck("--grpc-port", port, "--tls"))
        own = ("--client-cert", path("client.pem"), "--client-key", path("client.key"))
        self.assertTrue(healthcheck("--grpc-port", port, "--tls", *own))
        command = pathlib.Path(SERVER_BINARY).parent.parent / "client" / "sluice"
        self.assertEqual(run(command, "health", "-u", server.grpc, "--tls", "--ca-cert", path("root.pem"), *own).returncode, 0)
        self.assertNotEqual(run(command, "health", "-u", server.grpc).returncode, 0)
        self.assertEqual(server.stop(), 0)

    def test_bad_tls_stops_the_start(self):
        started = run(SERVER_BINARY, "--model-repository", MODELS, "--grpc-port=0", "--metrics-port=0",
                      "--grpc-use-ssl=1", "--grpc-server-cert=missing.pem", "--grpc-server-key=missing.key")
        self.assertEqual(started.returncode, 1)
        self.assertIn("--grpc-server-cert", started.stderr)

    def test_restricted_protocols(self):
        server = self.start("--grpc-restricted-protocol", "inference,statistics:door=sesame")
        client = self.connect(server.grpc)
        right = {"triton-grpc-protocol-door": "sesame"}
        self.assertTrue(client.is_server_ready())
        self.assertEqual(infer(client, headers=right).as_numpy("target_label").shape, (1, 214))
        self.assertEqual(client.get_inference_statistics("filetype", headers=right).model_stats[0].inference_count, 1)
        for headers in (None, {"triton-grpc-protocol-door": "Sesame"}):
            self.assertUnavailable(lambda headers=headers: infer(client, headers=headers))
            self.assertUnavailable(lambda headers=headers: client.get_inference_statistics("filetype", headers=headers))
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("sesame", server.log())

    def test_latency_port_and_unix_socket(self):
        path = pathlib.Path(self.folder()) / "socket"
        server = self.start("--latency-port=0", "--grpc-unix-socket", str(path))

        def class_at(address):
            response = infer(self.connect(address), priority=0).get_response()
            return response.parameters["sluice_class"].string_param
        self.assertEqual(class_at(f"127.0.0.1:{server.ready['latency_port']}"), "latency")
        self.assertEqual(class_at(server.grpc), class_at(f"unix:{path}"))
        self.assertTrue(healthcheck("--grpc-unix-socket", path))
        self.assertEqual(server.stop(), 0)
        self.assertFalse(path.exists())

    def polled_in_one_set(self, server):
        """Whether gRPC asks for events of all connections at once, by epoll."""
        descriptors = pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()
        return any(os.readlink(path) == "anon_inode:[eventpoll]" for path in descriptors)

    def test_the_latency_port_is_polled_apart(self):
        """Else the bytes of a large body on the other port may be taken in by its I/O thread."""
        self.assertTrue(self.polled_in_one_set(self.start()))
        apart = self.start("--latency-port=0")
        self.assertFalse(self.polled_in_one_set(apart))
        self.assertEqual(infer(self.connect(apart.grpc)).as_numpy("target_label").shape[0], 1)
        asked_for = self.start("--latency-port=0", environment=dict(os.environ, GRPC_POLL_STRATEGY="epoll1"))
        self.assertTrue(self.polled_in_one_set(asked_for))
        self.assertIn("bytes of either port may hold up the other", asked_for.log())

    def threads(self, server):
        return len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))

    def test_reflection(self):
        """It tells the methods, on a bounded number of threads of its own; without the flag it is not there."""
        server = self.start("--grpc-reflection=1")
        channel = grpc.insecure_channel(server.grpc)
        self.addCleanup(channel.close)
        database = ProtoReflectionDescriptorDatabase(channel)
        self.assertEqual(set(database.get_services()),
                         {"inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"})
        methods = database.FindFileContainingSymbol("inference.GRPCInferenceService").service[0].method
        self.assertIn("ModelInfer", [method.name for method in methods])

        before = self.threads(server)
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        list_services, asked = b"\x3a\x01*", threading.Event()

        def ask():
            yield list_services
            asked.wait(60)
        streams = [call(ask()) for _ in range(30)]
        self.addCleanup(asked.set)
        answered = 0
        for stream in streams:
            try:
                answered += bool(next(stream))
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertGreater(answered, 0)
        self.assertLess(answered, 10)
        self.assertLess(self.threads(server), before + 10)
        self.assertEqual(infer(self.connect(server.grpc)).as_numpy("target_label").shape, (1, 214))
        asked.set()
        self.assertEqual(server.stop(), 0)

        server = self.start()
        channel = grpc.insecure_channel(server.grpc)
        self.addCleanup(channel.close)
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with self.assertRaises(grpc.RpcError) as caught:
            next(call(iter([list_services])))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assertEqual(server.stop(), 0)

    def test_storm_of_connections(self):
        """More connections than descriptors: those that are there are served on, and when the others go, so are new ones."""
        server = self.start(open_files=64)
        port = server.ready["grpc_port"]
        before = self.connect(server.grpc)
        self.assertTrue(before.is_server_ready())
        storm = []
        for _ in range(200):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            storm.append(connection)
        self.assertFalse(healthcheck("--grpc-port", port), "a new connection found a descriptor: no storm")
        self.assertEqual(infer(before).as_numpy("target_label").shape, (1, 214))
        for connection in storm:
            connection.close()
        self.assertEqual(infer(self.connect(server.grpc), client_timeout=60).as_numpy("target_label").shape, (1, 214))
        self.assertTrue(healthcheck("--grpc-port", port), server.log())
        self.assertEqual(server.stop(), 0)
        self.assertIn("connections are accepted again", server.log())

    def test_clients_that_hang_do_not_hold_up_the_end(self):
        """SIGTERM with an idle connection, a half-sent request, running work, a watch and a response that nobody reads."""
        grace = 3
        server = self.start(f"--exit-timeout-secs={grace}", models=("filetype", "resnet50"))
        port = server.ready["grpc_port"]
        idle = socket.create_connection(("127.0.0.1", port))
        self.addCleanup(idle.close)
        request = service_pb2.ModelInferRequest(model_name="filetype")
        request.inputs.add(name="bytes", datatype="INT32", shape=[1, 2048])
        request.raw_input_contents.append(bytes(8192))
        message = request.SerializeToString()
        half = self.raw_call(port, len(message), message[:100])
        unread = self.raw_call(port, len(message), message)
        for connection in (half, unread):
            self.addCleanup(connection.close)
        client = self.connect(server.grpc)
        end = time.monotonic() + 60
        while client.get_inference_statistics("filetype").model_stats[0].inference_count == 0:
            self.assertLess(time.monotonic(), end, "the request whose response is not read was not served")
        channel = grpc.insecure_channel(server.grpc)
        self.addCleanup(channel.close)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        work = [stub.ModelInfer.future(self.batch()) for _ in range(4)]
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        self.assertEqual(next(watch), b"\x08\x01")
        server.process.send_signal(signal.SIGTERM)
        # 5 s are the server's own for what comes after the grace; the rest is for a slow machine.
        code = server.process.wait(grace + 5 + 30)
        self.assertIn(code, (0, 4), server.log())
        for call in work:
            self.assertIn(call.code(), (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED))

    @staticmethod
    def raw_call(port, length, data):
        """A connection that may be sent nothing but headers, with a ModelInfer call of which `data` is there: the whole
        message, or its beginning."""
        def frame(kind, flags, stream, payload):
            return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

        def literal(name, value):
            return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        headers = b"".join(literal(name, value) for name, value in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
            (b":authority", b"localhost"), (b"te", b"trailers"), (b"content-type", b"application/grpc")))
        settings, head, body = 4, 1, 0
        no_window = (4).to_bytes(2, "big") + bytes(4)
        end_of_headers, end_of_stream = 4, 1 if len(data) == length else 0
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, no_window) +
                           frame(head, end_of_headers, 1, headers) +
                           frame(body, end_of_stream, 1, b"\x00" + length.to_bytes(4, "big") + data))
        return connection

    @staticmethod
    def batch():
        request = service_pb2.ModelInferRequest(model_name="resnet50")
        request.inputs.add(name="data", datatype="FP32", shape=[8, 3, 224, 224])
        request.raw_input_contents.append(bytes(8 * 3 * 224 * 224 * 4))
        return request


if __name__ == "__main__":
    server_process.main("__main__")
