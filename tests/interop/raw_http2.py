# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand: frames that no well-behaved client sends, in any order, over a plain socket."""
import socket
import struct

import hpack
from hyperframe import frame as frames

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
FRAME_HEADER = 9


def grpc_message(message, compressed=0, length=None):
    """A message behind gRPC's prefix; `length` is a lie about its size."""
    return struct.pack(">BI", compressed, len(message) if length is None else length) + message


class Connection:
    """One connection. Nothing is sent or read unless the test says so; acknowledgements are sent while reading."""

    def __init__(self, address, settings=None, hello=True, timeout=60):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self._bytes = b""
        if hello:
            self.socket.sendall(PREFACE + frames.SettingsFrame(0, settings=settings or {}).serialize())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, *what):
        self.socket.sendall(b"".join(frame.serialize() for frame in what))

    def headers(self, stream, path=INFER, end_stream=False, extra=(), without=()):
        """The frame that begins a call."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
                  ("te", "trailers"), ("content-type", "application/grpc")]
        names = [name for name, _ in extra]
        fields = [field for field in fields if field[0] not in names and field[0] not in without]
        pseudo = [field for field in extra if field[0].startswith(":")]
        fields = pseudo + fields + [field for field in extra if not field[0].startswith(":")]
        flags = ["END_HEADERS"] + (["END_STREAM"] if end_stream else [])
        return frames.HeadersFrame(stream, data=self.encoder.encode(fields), flags=flags)

    @staticmethod
    def data(stream, data, end_stream=True):
        """One frame: at most 16,384 bytes."""
        return frames.DataFrame(stream, data=data, flags=["END_STREAM"] if end_stream else [])

    def read(self):
        """The next frame; None at the end of the connection."""
        header = self._take(FRAME_HEADER)
        if header is None:
            return None
        frame, length = frames.Frame.parse_frame_header(memoryview(header))
        body = self._take(length)
        if body is None:
            return None
        frame.parse_body(memoryview(body))
        if isinstance(frame, frames.SettingsFrame) and "ACK" not in frame.flags:
            self._answer(frames.SettingsFrame(0, flags=["ACK"]))
        if isinstance(frame, frames.PingFrame) and "ACK" not in frame.flags:
            self._answer(frames.PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
        return frame

    def answer(self, stream):
        """Reads until the stream ends: all its header fields and its data. (None, data) when the connection or the
        stream was cut."""
        fields, data = {}, b""
        while True:
            frame = self.read()
            if frame is None:
                return None, data
            if isinstance(frame, frames.HeadersFrame):  # gRPC's are short: no continuation
                decoded = dict(self.decoder.decode(frame.data))
                if frame.stream_id == stream:
                    fields.update(decoded)
            if frame.stream_id != stream:
                continue
            if isinstance(frame, frames.DataFrame):
                data += frame.data
            if isinstance(frame, frames.RstStreamFrame) and "grpc-status" not in fields:
                return None, data
            if "END_STREAM" in frame.flags or isinstance(frame, frames.RstStreamFrame):
                return fields, data

    def read_to_end(self):
        """Everything until the server closes; the last GOAWAY, if one came."""
        goaway = None
        while True:
            frame = self.read()
            if frame is None:
                return goaway
            if isinstance(frame, frames.GoAwayFrame):
                goaway = frame

    def _answer(self, frame):
        try:
            self.send(frame)
        except OSError:
            pass  # the server has closed; what it sent before is still to be read

    def _take(self, count):
        while len(self._bytes) < count:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not more:
                return None
            self._bytes += more
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken
