# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: existing clients' shared memory works unchanged. Method: the real tritonclient, with its own helpers for system
shared memory, against a real server process with the demo repository."""
import os
import queue
import unittest

import numpy as np
import tritonclient.grpc as tritonclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

import server_process

SERVER_BINARY = None
LABELS = 214
WAIT = 60


def filetype_data(rows=1, seed=1):
    return np.random.RandomState(seed).randint(0, 257, size=(rows, 2048)).astype(np.int32)


def in_message(data):
    tensor = tritonclient.InferInput("bytes", list(data.shape), "INT32")
    tensor.set_data_from_numpy(data)
    return tensor


def in_region(data, offset=0):
    tensor = tritonclient.InferInput("bytes", list(data.shape), "INT32")
    tensor.set_shared_memory("input", data.nbytes, offset)
    return tensor


class SharedMemoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = server_process.ServerProcess(SERVER_BINARY, "--shared-memory=system")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{cls.server.log()}")

    def setUp(self):
        self.client = tritonclient.InferenceServerClient(self.server.grpc)
        self.keys = {name: f"/sluice_interop_{os.getpid()}_{name}" for name in ("input", "output")}
        self.data = filetype_data(rows=4, seed=3)
        self.result_bytes = 4 * LABELS * 4
        self.input = shm.create_shared_memory_region("input", self.keys["input"], 2 * self.data.nbytes)
        self.output = shm.create_shared_memory_region("output", self.keys["output"], 2 * self.result_bytes)
        self.client.register_system_shared_memory("input", self.keys["input"], 2 * self.data.nbytes)
        self.client.register_system_shared_memory("output", self.keys["output"], 2 * self.result_bytes)
        self.expected = self.client.infer("filetype", [in_message(self.data)]).as_numpy("target_label")

    def tearDown(self):
        self.client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(self.input)
        shm.destroy_shared_memory_region(self.output)
        self.client.close()

    def asked_for(self, byte_size=None, offset=0):
        output = tritonclient.InferRequestedOutput("target_label")
        output.set_shared_memory("output", self.result_bytes if byte_size is None else byte_size, offset)
        return output

    def written(self, offset=0):
        return shm.get_contents_as_numpy(self.output, np.float32, [4, LABELS], offset)

    def assertFails(self, code, words, call, *arguments, **named):
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.status(), f"StatusCode.{code}")
        self.assertIn(words, caught.exception.message())

    def test_is_advertised(self):
        self.assertIn("system_shared_memory", self.client.get_server_metadata().extensions)
        self.assertNotIn("cuda_shared_memory", self.client.get_server_metadata().extensions)

    def test_status(self):
        regions = self.client.get_system_shared_memory_status().regions
        self.assertEqual(set(regions), {"input", "output"})
        self.assertEqual(regions["input"].key, self.keys["input"])
        self.assertEqual(regions["input"].byte_size, 2 * self.data.nbytes)
        self.assertEqual(list(self.client.get_system_shared_memory_status("output").regions), ["output"])
        self.assertFails("NOT_FOUND", "Unable to find system shared memory region: 'other'",
                         self.client.get_system_shared_memory_status, "other")

    def test_input_and_output(self):
        shm.set_shared_memory_region(self.input, [self.data])
        result = self.client.infer("filetype", [in_region(self.data)], outputs=[self.asked_for()])
        np.testing.assert_array_equal(self.written(), self.expected)
        output = result.get_output("target_label")
        self.assertEqual(list(output.shape), [4, LABELS])
        self.assertEqual(output.datatype, "FP32")
        self.assertEqual(output.parameters["shared_memory_region"].string_param, "output")
        self.assertEqual(output.parameters["shared_memory_byte_size"].int64_param, self.result_bytes)

    def test_offsets(self):
        shm.set_shared_memory_region(self.input, [self.data], offset=self.data.nbytes)
        self.client.infer("filetype", [in_region(self.data, self.data.nbytes)],
                          outputs=[self.asked_for(offset=self.result_bytes)])
        np.testing.assert_array_equal(self.written(self.result_bytes), self.expected)

    def test_only_one_side(self):
        shm.set_shared_memory_region(self.input, [self.data])
        result = self.client.infer("filetype", [in_region(self.data)])
        np.testing.assert_array_equal(result.as_numpy("target_label"), self.expected)
        self.client.infer("filetype", [in_message(self.data)], outputs=[self.asked_for()])
        np.testing.assert_array_equal(self.written(), self.expected)

    def test_a_tensor_goes_back_to_the_message(self):
        tensor = in_region(self.data)
        tensor.set_data_from_numpy(self.data)
        output = self.asked_for()
        output.unset_shared_memory()
        result = self.client.infer("filetype", [tensor], outputs=[output])
        np.testing.assert_array_equal(result.as_numpy("target_label"), self.expected)

    def test_streams(self):
        shm.set_shared_memory_region(self.input, [self.data])
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        for key in range(10):
            self.client.async_stream_infer("filetype", [in_region(self.data)], outputs=[self.asked_for()],
                                           request_id=str(key))
        for key in range(10):
            result, error = answers.get(timeout=WAIT)
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(key))
        self.client.stop_stream()
        np.testing.assert_array_equal(self.written(), self.expected)

    def test_mistakes(self):
        self.assertFails("ALREADY_EXISTS", "shared memory region 'input' already in manager",
                         self.client.register_system_shared_memory, "input", self.keys["input"], 8)
        self.assertFails("NOT_FOUND", "Unable to open shared memory region: '/sluice_interop_none'",
                         self.client.register_system_shared_memory, "none", "/sluice_interop_none", 8)
        self.assertFails("INVALID_ARGUMENT", "should be at least", self.client.infer, "filetype", [in_message(self.data)],
                         outputs=[self.asked_for(byte_size=8)])
        self.assertFails("INVALID_ARGUMENT", "input 'bytes'", self.client.infer, "filetype",
                         [in_region(self.data, 2 * self.data.nbytes)])
        self.client.unregister_system_shared_memory("input")
        self.client.unregister_system_shared_memory("input")
        self.assertFails("NOT_FOUND", "Unable to find shared memory region: 'input'", self.client.infer, "filetype",
                         [in_region(self.data)])

    def test_a_client_that_shrinks_its_memory(self):
        shm.set_shared_memory_region(self.input, [self.data])
        os.truncate(f"/dev/shm{self.keys['input']}", 100)
        self.assertFails("FAILED_PRECONDITION", "became smaller", self.client.infer, "filetype", [in_region(self.data)])
        result = self.client.infer("filetype", [in_message(self.data)])
        np.testing.assert_array_equal(result.as_numpy("target_label"), self.expected)


if __name__ == "__main__":
    server_process.main(__name__)
