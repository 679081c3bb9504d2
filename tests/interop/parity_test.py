# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the demo models compute what their files say. Method: parity_checks.py against a real server on the host device,
through tritonclient; the largest errors are printed."""
import unittest

import numpy as np
import tritonclient.grpc as tritonclient

import parity_checks
import server_process

SERVER_BINARY = None


class ParityTest(parity_checks.ParityChecks, unittest.TestCase):
    models = server_process.ROOT / "models"

    @classmethod
    def setUpClass(cls):
        cls.server_binary = SERVER_BINARY
        cls.server = server_process.ServerProcess(SERVER_BINARY)
        cls.client = tritonclient.InferenceServerClient(cls.server.grpc)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def served(self, model, name, data):
        datatype = {np.dtype(np.int32): "INT32", np.dtype(np.float32): "FP32"}[data.dtype]
        tensor = tritonclient.InferInput(name, list(data.shape), datatype)
        tensor.set_data_from_numpy(data)
        response = self.client.infer(model, [tensor])
        return response.as_numpy(response.get_response().outputs[0].name)


if __name__ == "__main__":
    server_process.main("__main__")
