# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: KServe's own Python client works unchanged. Method: the real client (scripts/long.sh kserve installs it, apart from
tritonclient, whose generated messages have the same names) against a real server process with the demo repository."""
import unittest

import grpc
import numpy as np
from kserve import InferInput, InferRequest, InferenceGRPCClient

import server_process

SERVER_BINARY = None


def filetype_data(rows=1, seed=1):
    return np.random.RandomState(seed).randint(0, 257, size=(rows, 2048)).astype(np.int32)


class KServeTest(server_process.OneServer, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = InferenceGRPCClient(url=self.server.grpc)

    async def asyncTearDown(self):
        await self.client.close()

    async def test_health(self):
        self.assertTrue(await self.client.is_server_live())
        self.assertTrue(await self.client.is_server_ready())
        self.assertTrue(await self.client.is_model_ready("filetype"))

    async def test_arrays_and_lists_give_the_same_answer(self):
        data = filetype_data(rows=2)
        raw = InferInput(name="bytes", shape=list(data.shape), datatype="INT32")
        raw.set_data_from_numpy(data, binary_data=True)
        typed = InferInput(name="bytes", shape=list(data.shape), datatype="INT32", data=data.reshape(-1).tolist())
        answers = []
        for tensor in (raw, typed):
            response = await self.client.infer(InferRequest(model_name="filetype", infer_inputs=[tensor], request_id="an id"))
            self.assertEqual(response.id, "an id")
            self.assertEqual(response.model_name, "filetype")
            self.assertEqual([output.name for output in response.outputs], ["target_label"])
            answers.append(response.outputs[0].as_numpy())
        self.assertEqual(answers[0].shape, (2, 214))
        np.testing.assert_array_equal(answers[0], answers[1])
        np.testing.assert_allclose(answers[0].sum(axis=1), 1, rtol=1e-4)

    async def test_errors_keep_their_code_and_words(self):
        for model, name, code, word in (("nobody", "bytes", grpc.StatusCode.NOT_FOUND, "unknown model"),
                                        ("filetype", "letters", grpc.StatusCode.INVALID_ARGUMENT, "letters")):
            tensor = InferInput(name=name, shape=[1, 2048], datatype="INT32")
            tensor.set_data_from_numpy(filetype_data(), binary_data=True)
            with self.assertRaises(grpc.RpcError) as caught:
                await self.client.infer(InferRequest(model_name=model, infer_inputs=[tensor]))
            self.assertEqual(caught.exception.code(), code)
            self.assertIn(word, caught.exception.details())

    async def test_a_timeout_is_the_deadline(self):
        data = np.zeros((8, 3, 224, 224), np.float32)
        tensor = InferInput(name="data", shape=list(data.shape), datatype="FP32")
        tensor.set_data_from_numpy(data, binary_data=True)
        with self.assertRaises(grpc.RpcError) as caught:
            await self.client.infer(InferRequest(model_name="resnet50", infer_inputs=[tensor]), timeout=0.02)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


if __name__ == "__main__":
    server_process.main(__name__)
