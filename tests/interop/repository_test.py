# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: operators' clients list, load and unload models as they do with Triton. Method: the real tritonclient against a
server process that is told what to load; its repository is a folder of links to the demo model, in one batch size so that
it loads quickly."""
import json
import os
import pathlib
import tempfile
import threading
import time
import unittest

import numpy as np
import tritonclient.grpc as tritonclient
from tritonclient.utils import InferenceServerException

import server_process

SERVER_BINARY = None
ONE_BUCKET = {"sluice.buckets": {"string_value": "1"}}


def add_model(folder, name):
    model = pathlib.Path(folder) / name
    (model / "1").mkdir(parents=True)
    os.symlink(server_process.ROOT / "models" / "filetype" / "1" / "model.onnx", model / "1" / "model.onnx")
    (model / "config.pbtxt").write_text(
        'max_batch_size: 4 parameters { key: "sluice.buckets" value { string_value: "1" } }')


class RepositoryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        add_model(self.folder.name, "filetype")
        self.server = server_process.ServerProcess(
            SERVER_BINARY, "--model-control-mode=explicit", repository=pathlib.Path(self.folder.name))
        self.client = tritonclient.InferenceServerClient(self.server.grpc)

    def tearDown(self):
        self.client.close()
        code = self.server.stop()
        self.folder.cleanup()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{self.server.log()}")

    def index(self):
        models = self.client.get_model_repository_index().models
        return [(model.name, model.version, model.state, model.reason) for model in models]

    def await_index(self, expected):
        end = time.monotonic() + 60
        while self.index() != expected:
            self.assertLess(time.monotonic(), end, f"{self.index()} is not {expected}")

    def infer(self, model="filetype", rows=1):
        tensor = tritonclient.InferInput("bytes", [rows, 2048], "INT32")
        tensor.set_data_from_numpy(np.random.RandomState(1).randint(0, 257, size=(rows, 2048)).astype(np.int32))
        return self.client.infer(model, [tensor])

    def assertFails(self, status, word, call, *arguments, **named):
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.status(), f"StatusCode.{status}")
        self.assertIn(word, caught.exception.message())

    def test_a_model_is_loaded_and_unloaded(self):
        self.assertTrue(self.client.is_server_ready())
        self.assertEqual(self.index(), [("filetype", "", "", "")])
        self.assertFails("NOT_FOUND", "unknown model", self.infer)
        self.client.load_model("filetype")
        self.assertTrue(self.client.is_model_ready("filetype"))
        self.assertEqual(self.index(), [("filetype", "1", "READY", "")])
        self.assertEqual(self.infer().as_numpy("target_label").shape, (1, 214))
        self.client.unload_model("filetype")
        self.assertFalse(self.client.is_model_ready("filetype"))
        self.await_index([("filetype", "1", "UNAVAILABLE", "unloaded")])
        self.assertTrue(self.client.is_server_ready())
        self.assertFails("UNAVAILABLE", "unloaded", self.infer)
        self.client.unload_model("filetype", unload_dependents=True)
        self.client.load_model("filetype")
        self.assertEqual(self.infer().as_numpy("target_label").shape, (1, 214))

    def test_a_config_in_the_call_takes_effect(self):
        self.client.load_model("filetype", config=json.dumps({
            "max_batch_size": 2, "parameters": {"sluice.default_class": {"string_value": "batch"}, **ONE_BUCKET}}))
        config = self.client.get_model_config("filetype").config
        self.assertEqual(config.max_batch_size, 2)
        result = self.infer(rows=2).get_response()
        self.assertEqual(result.parameters["sluice_class"].string_param, "batch")
        self.assertFails("INVALID_ARGUMENT", "2", self.infer, rows=3)

    def test_a_config_as_it_was_answered_can_be_given_back(self):
        self.client.load_model("filetype")
        config = self.client.get_model_config("filetype", as_json=True)["config"]
        self.client.load_model("filetype", config=json.dumps(config))
        self.assertEqual(self.client.get_model_config("filetype", as_json=True)["config"], config)

    def test_failures_say_why(self):
        self.assertFails("INTERNAL", "no such model", self.client.load_model, "nobody")
        self.assertFails("INTERNAL", "no such model", self.client.unload_model, "nobody")
        self.assertFails("INVALID_ARGUMENT", "config", self.client.load_model, "filetype", config="{")
        self.assertFails("INTERNAL", "failed to load 'filetype'", self.client.load_model, "filetype",
                         config=json.dumps({"input": [{"name": "nothing", "data_type": "TYPE_FP32", "dims": [1]}]}))
        self.assertFails("INTERNAL", "1/model.onnx: byte", self.client.load_model, "filetype", config="{}",
                         files={"file:1/model.onnx": b"x"})
        self.assertFails("INVALID_ARGUMENT", "parameter 'file:../model.onnx'", self.client.load_model, "filetype", config="{}",
                         files={"file:../model.onnx": b"x"})
        self.assertFails("INVALID_ARGUMENT", "parameter 'config'", self.client.load_model, "filetype",
                         files={"file:1/model.onnx": b"x"})
        self.assertEqual(self.index(), [("filetype", "1", "UNAVAILABLE", self.index()[0][3])])

    def test_files_in_the_call_are_served(self):
        model = (server_process.ROOT / "models" / "filetype" / "1" / "model.onnx").read_bytes()
        config = json.dumps({"max_batch_size": 1, "parameters": ONE_BUCKET})
        self.client.load_model("filetype")
        expected = self.infer().as_numpy("target_label")
        self.client.load_model("filetype", config=config, files={"file:3/model.onnx": model})
        self.await_index([("filetype", "1", "UNAVAILABLE", "unloaded"), ("filetype", "3", "READY", "")])
        result = self.infer()
        self.assertEqual(result.get_response().model_version, "3")
        np.testing.assert_array_equal(result.as_numpy("target_label"), expected)
        self.assertFails("INVALID_ARGUMENT", "1", self.infer, rows=2)
        self.client.load_model("guest", config=config, files={"file:1/model.onnx": model})
        np.testing.assert_array_equal(self.infer("guest").as_numpy("target_label"), expected)
        self.client.load_model("filetype")
        self.assertEqual(self.infer(rows=2).get_response().model_version, "1")
        self.client.unload_model("guest")
        self.await_index([("filetype", "1", "READY", ""), ("filetype", "3", "UNAVAILABLE", "unloaded")])

    def test_a_model_added_later_is_found(self):
        self.client.load_model("filetype")
        add_model(self.folder.name, "another")
        self.assertEqual(self.index(), [("another", "", "", ""), ("filetype", "1", "READY", "")])
        self.client.load_model("another")
        self.assertEqual(self.infer("another").as_numpy("target_label").shape, (1, 214))

    def test_nothing_fails_while_its_model_is_loaded_again(self):
        self.client.load_model("filetype")
        over = threading.Event()
        answers = []

        def call():
            while not over.is_set():
                answers.append(self.infer().as_numpy("target_label").shape)
        caller = threading.Thread(target=call)
        caller.start()
        try:
            for _ in range(3):
                self.client.load_model("filetype")
        finally:
            over.set()
            caller.join()
        self.assertGreater(len(answers), 0)
        self.assertEqual(set(answers), {(1, 214)})

    def test_the_extension_is_named(self):
        self.assertIn("model_repository", self.client.get_server_metadata().extensions)


class WithoutControlTest(unittest.TestCase):
    def test_only_the_index_is_served(self):
        folder = tempfile.TemporaryDirectory()
        add_model(folder.name, "filetype")
        server = server_process.ServerProcess(SERVER_BINARY, repository=folder.name)
        client = tritonclient.InferenceServerClient(server.grpc)
        try:
            models = client.get_model_repository_index().models
            self.assertEqual([(model.name, model.version, model.state) for model in models], [("filetype", "1", "READY")])
            self.assertNotIn("model_repository", client.get_server_metadata().extensions)
            with self.assertRaises(InferenceServerException) as caught:
                client.load_model("filetype")
            self.assertEqual(caught.exception.status(), "StatusCode.UNAVAILABLE")
        finally:
            client.close()
            code = server.stop()
            folder.cleanup()
        self.assertEqual(code, 0)


if __name__ == "__main__":
    server_process.main("__main__")
