# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: existing clients' streams work unchanged. Method: the real tritonclient's two stream APIs (threads and asyncio),
and its generated stubs for what they hide, against a real server process with the demo repository."""
import asyncio
import queue
import unittest

import grpc
import numpy as np
import tritonclient.grpc as tritonclient
import tritonclient.grpc.aio as tritonclient_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import server_process

SERVER_BINARY = None
WAIT = 60


def filetype_data(rows=1, seed=1):
    return np.random.RandomState(seed).randint(0, 257, size=(rows, 2048)).astype(np.int32)


def filetype_inputs(rows=1, seed=1):
    data = filetype_data(rows, seed)
    tensor = tritonclient.InferInput("bytes", list(data.shape), "INT32")
    tensor.set_data_from_numpy(data)
    return [tensor]


def slow_inputs():
    data = np.zeros((8, 3, 224, 224), np.float32)
    tensor = tritonclient.InferInput("data", list(data.shape), "FP32")
    tensor.set_data_from_numpy(data)
    return [tensor]


class StreamsTest(server_process.OneServer, unittest.TestCase):
    def setUp(self):
        self.answers = queue.Queue()
        self.client = tritonclient.InferenceServerClient(self.server.grpc)

    def tearDown(self):
        self.client.close()

    def start(self, **options):
        self.client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def answer(self):
        return self.answers.get(timeout=WAIT)

    def test_requests_come_back_in_order_with_their_ids(self):
        self.start()
        for key in range(50):
            self.client.async_stream_infer("filetype", filetype_inputs(1 + key % 8, key), request_id=str(key))
        for key in range(50):
            result, error = self.answer()
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(key))
            self.assertEqual(result.as_numpy("target_label").shape, (1 + key % 8, 214))
            self.assertTrue(result.get_response().parameters["triton_final_response"].bool_param)
        self.client.stop_stream()

    def test_the_same_answer_as_a_unary_call(self):
        self.start()
        self.client.async_stream_infer("filetype", filetype_inputs(seed=3))
        result, error = self.answer()
        self.assertIsNone(error)
        unary = self.client.infer("filetype", filetype_inputs(seed=3))
        np.testing.assert_array_equal(result.as_numpy("target_label"), unary.as_numpy("target_label"))
        self.client.stop_stream()

    def test_an_error_leaves_the_stream_open(self):
        self.start()
        self.client.async_stream_infer("nobody", filetype_inputs(), request_id="first")
        self.client.async_stream_infer("filetype", filetype_inputs(), request_id="second")
        result, error = self.answer()
        self.assertIsNone(result)
        self.assertIn("unknown model", error.message())
        self.assertIn("first", error.message())
        result, error = self.answer()
        self.assertIsNone(error)
        self.assertEqual(result.get_response().id, "second")
        self.client.stop_stream()

    def test_an_error_as_the_status(self):
        self.start(headers={"triton_grpc_error": "true"})
        self.client.async_stream_infer("nobody", filetype_inputs())
        _, error = self.answer()
        self.assertIsInstance(error, InferenceServerException)
        self.assertEqual(error.status(), "StatusCode.NOT_FOUND")
        self.client.stop_stream()

    def test_priorities_and_compression(self):
        self.start(compression_algorithm="gzip")
        for priority, used in ((1, "latency"), (2, "standard"), (3, "batch")):
            self.client.async_stream_infer("filetype", filetype_inputs(), priority=priority, enable_empty_final_response=True)
            result, error = self.answer()
            self.assertIsNone(error)
            self.assertEqual(result.get_response().parameters["sluice_class"].string_param, used)
        self.client.stop_stream()

    def test_cancelling_a_stream(self):
        self.start()
        for _ in range(8):
            self.client.async_stream_infer("resnet50", slow_inputs())
        self.client.stop_stream(cancel_requests=True)
        while True:
            _, error = self.answer()
            if error is not None:
                self.assertEqual(error.status(), "StatusCode.CANCELLED")
                break
        self.assertEqual(self.client.infer("filetype", filetype_inputs()).as_numpy("target_label").shape, (1, 214))

    def test_a_stream_ends_at_its_deadline(self):
        """The server ends the request that is late, in band; whether that still arrives is a race with the client."""
        inputs = slow_inputs()
        self.start(stream_timeout=0.2)
        self.client.async_stream_infer("resnet50", inputs)
        while True:
            _, error = self.answer()
            if error is None:
                continue
            if error.status() is not None:
                break
            self.assertIn("deadline", error.message().lower())
        self.assertEqual(error.status(), "StatusCode.DEADLINE_EXCEEDED")
        self.client.stop_stream(cancel_requests=True)

    def test_asyncio(self):
        async def run():
            async with tritonclient_aio.InferenceServerClient(self.server.grpc) as client:
                async def requests():
                    for key in range(20):
                        yield {"model_name": "filetype", "inputs": filetype_inputs(seed=key), "request_id": str(key)}
                return [(result.get_response().id, error) async for result, error in client.stream_infer(requests())]
        self.assertEqual(asyncio.run(run()), [(str(key), None) for key in range(20)])

    def test_an_error_carries_the_id_and_nothing_else(self):
        request = service_pb2.ModelInferRequest(model_name="filetype", id="an id")
        with grpc.insecure_channel(self.server.grpc) as channel:
            answers = list(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request])))
        self.assertEqual(len(answers), 1)
        self.assertIn("bytes", answers[0].error_message)
        self.assertEqual(answers[0].infer_response, service_pb2.ModelInferResponse(id="an id"))


if __name__ == "__main__":
    server_process.main(__name__)
