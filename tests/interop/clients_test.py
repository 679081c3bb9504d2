# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: existing clients work unchanged. Method: the real tritonclient (pinned), and its generated stubs for what its
API hides, against a real server process with the demo repository."""
import threading
import unittest
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as tritonclient
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import server_process

SERVER_BINARY = None


def filetype_input(rows=1, seed=1):
    return np.random.RandomState(seed).randint(0, 257, size=(rows, 2048)).astype(np.int32)


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = server_process.ServerProcess(SERVER_BINARY)
        cls.client = tritonclient.InferenceServerClient(cls.server.grpc)
        cls.channel = grpc.insecure_channel(cls.server.grpc)
        cls.stub = service_pb2_grpc.GRPCInferenceServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.channel.close()
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{cls.server.log()}")

    def infer(self, data=None, **options):
        data = filetype_input() if data is None else data
        tensor = tritonclient.InferInput("bytes", list(data.shape), "INT32")
        tensor.set_data_from_numpy(data)
        return self.client.infer("filetype", [tensor], **options)

    def request(self, **fields):
        """A raw protobuf request that is right unless `fields` say otherwise."""
        data = filetype_input()
        request = service_pb2.ModelInferRequest(model_name="filetype", id="an id")
        tensor = request.inputs.add(name="bytes", datatype="INT32", shape=list(data.shape))
        request.raw_input_contents.append(data.tobytes())
        for name, value in fields.items():
            setattr(request, name, value)
        return request, tensor

    def assertFails(self, request, code, *words, metadata=None):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.ModelInfer(request, metadata=metadata)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        for word in words:
            self.assertIn(word, caught.exception.details())

    def test_health_and_readiness(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("filetype"))
        self.assertTrue(self.client.is_model_ready("filetype", "1"))
        with self.assertRaises(InferenceServerException) as caught:
            self.client.is_model_ready("nobody")
        self.assertEqual(caught.exception.status(), "StatusCode.NOT_FOUND")
        self.assertIn("unknown model", caught.exception.message())

    def test_server_metadata(self):
        metadata = self.client.get_server_metadata()
        self.assertEqual(metadata.name, "sluice")
        self.assertRegex(metadata.version, r"^\d+\.\d+\.\d+$")
        self.assertIn("statistics", metadata.extensions)
        self.assertIn("model_configuration", metadata.extensions)
        self.assertNotIn("sequence", metadata.extensions)

    def test_model_metadata(self):
        metadata = self.client.get_model_metadata("filetype")
        self.assertEqual((metadata.name, list(metadata.versions)), ("filetype", ["1"]))
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in metadata.inputs], [("bytes", "INT32", [-1, 2048])])
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in metadata.outputs],
                         [("target_label", "FP32", [-1, 214])])

    def test_model_config(self):
        config = self.client.get_model_config("resnet50").config
        self.assertEqual(config.name, "resnet50")
        self.assertGreaterEqual(config.max_batch_size, 1)
        self.assertEqual([list(t.dims) for t in config.input], [[3, 224, 224]])
        self.assertEqual([list(t.dims) for t in config.output], [[1000]])
        self.assertEqual(config.parameters["sluice.default_class"].string_value, "batch")
        self.assertEqual(config.WhichOneof("scheduling_choice") in (None, "dynamic_batching"), True)

    def test_statistics_count_what_ran(self):
        def counts():
            statistics = self.client.get_inference_statistics("filetype", "1").model_stats[0]
            return (statistics.inference_count, statistics.execution_count, statistics.inference_stats.success.count,
                    statistics.inference_stats.compute_infer.ns)
        before = counts()
        self.infer(filetype_input(rows=3))
        after = counts()
        self.assertEqual(after[0] - before[0], 3)
        self.assertEqual(after[1] - before[1], 1)
        self.assertEqual(after[2] - before[2], 1)
        self.assertGreater(after[3], before[3])

    def test_raw_input(self):
        result = self.infer(filetype_input(rows=2), request_id="abc")
        output = result.as_numpy("target_label")
        self.assertEqual(output.shape, (2, 214))
        np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-4)
        self.assertEqual(result.get_response().id, "abc")
        self.assertEqual(result.get_response().model_version, "1")

    def test_typed_input_gives_the_same_answer(self):
        data = filetype_input()
        request = service_pb2.ModelInferRequest(model_name="filetype")
        tensor = request.inputs.add(name="bytes", datatype="INT32", shape=[1, 2048])
        tensor.contents.int_contents.extend(int(x) for x in data.reshape(-1))
        response = self.stub.ModelInfer(request)
        typed = np.frombuffer(response.raw_output_contents[0], dtype=np.float32)
        np.testing.assert_array_equal(typed, self.infer(data).as_numpy("target_label").reshape(-1))

    def test_rows_of_a_batch_are_independent(self):
        data = filetype_input(rows=8, seed=5)
        together = self.infer(data).as_numpy("target_label")
        for row in range(8):
            alone = self.infer(data[row:row + 1]).as_numpy("target_label")
            np.testing.assert_allclose(together[row], alone[0], rtol=1e-3, atol=1e-5)

    def test_ids_are_echoed_verbatim(self):
        for request_id in ("", "x", "ein Name mit Ümläut", "a" * 1000):
            request, _ = self.request(id=request_id)
            self.assertEqual(self.stub.ModelInfer(request).id, request_id)

    def test_class_comes_from_config_priority_and_metadata(self):
        def used(metadata=None, **options):
            request, _ = self.request()
            for key, (kind, value) in options.items():
                setattr(request.parameters[key], kind, value)
            return self.stub.ModelInfer(request, metadata=metadata).parameters["sluice_class"].string_param
        self.assertEqual(used(), "latency")
        self.assertEqual(used(priority=("uint64_param", 1)), "latency")
        self.assertEqual(used(priority=("int64_param", 2)), "standard")
        self.assertEqual(used(priority=("uint64_param", 3)), "batch")
        self.assertEqual(used(priority=("uint64_param", 99)), "batch")
        self.assertEqual(used(priority=("uint64_param", 0)), "latency")
        self.assertEqual(used(metadata=(("sluice-class", "batch"),), priority=("uint64_param", 1)), "batch")
        self.infer(priority=3, timeout=5_000_000)  # as the client itself encodes them

    def test_timings_on_request(self):
        request, _ = self.request()
        request.parameters["sluice_timings"].bool_param = True
        parameters = self.stub.ModelInfer(request).parameters
        for stage in ("queue", "copy_in", "h2d", "gpu_wait", "compute", "d2h"):
            self.assertGreaterEqual(parameters[f"sluice_{stage}_us"].int64_param, 0)
        self.assertGreater(parameters["sluice_compute_us"].int64_param, 0)

    def test_compression(self):
        for algorithm in ("gzip", "deflate"):
            self.assertEqual(self.infer(compression_algorithm=algorithm).as_numpy("target_label").shape, (1, 214))

    def test_requested_outputs(self):
        output = tritonclient.InferRequestedOutput("target_label")
        self.assertEqual(self.infer(outputs=[output]).as_numpy("target_label").shape, (1, 214))

    def test_asynchronous_calls_are_matched(self):
        done = threading.Semaphore(0)
        results = {}

        def keep(result, error, key):
            results[key] = error or result.get_response().id
            done.release()
        for key in range(20):
            tensor = tritonclient.InferInput("bytes", [1, 2048], "INT32")
            tensor.set_data_from_numpy(filetype_input(seed=key))
            self.client.async_infer("filetype", [tensor], lambda result, error, key=key: keep(result, error, key),
                                    request_id=str(key))
        for _ in range(20):
            self.assertTrue(done.acquire(timeout=60))
        self.assertEqual(results, {key: str(key) for key in range(20)})

    def test_deadline(self):
        data = np.zeros((8, 3, 224, 224), np.float32)
        tensor = tritonclient.InferInput("data", list(data.shape), "FP32")
        tensor.set_data_from_numpy(data)
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("resnet50", [tensor], client_timeout=0.02)
        self.assertEqual(caught.exception.status(), "StatusCode.DEADLINE_EXCEEDED")

    def test_error_codes(self):
        code = grpc.StatusCode
        self.assertFails(self.request(model_name="nobody")[0], code.NOT_FOUND, "unknown model")
        self.assertFails(self.request(model_version="7")[0], code.NOT_FOUND, "unknown model")
        self.assertFails(self.request(model_version="x")[0], code.INVALID_ARGUMENT, "version")

        request, tensor = self.request()
        tensor.name = "bites"
        self.assertFails(request, code.INVALID_ARGUMENT, "bites", "bytes")
        request, tensor = self.request()
        tensor.datatype = "FP32"
        self.assertFails(request, code.INVALID_ARGUMENT, "FP32", "INT32", "bytes")
        request, tensor = self.request()
        del tensor.shape[:]
        tensor.shape.extend([1, 2047])
        self.assertFails(request, code.INVALID_ARGUMENT, "bytes", "2048")
        request, _ = self.request()
        request.raw_input_contents[0] = b"short"
        self.assertFails(request, code.INVALID_ARGUMENT, "bytes", "8192", "5")
        request, _ = self.request()
        request.outputs.add(name="nothing")
        self.assertFails(request, code.INVALID_ARGUMENT, "nothing")
        request, _ = self.request()
        request.parameters["triton_x"].int64_param = 1
        self.assertFails(request, code.INVALID_ARGUMENT, "triton_x")
        request, _ = self.request()
        request.parameters["timeout"].string_param = "soon"
        self.assertFails(request, code.INVALID_ARGUMENT, "timeout")
        self.assertFails(self.request()[0], code.INVALID_ARGUMENT, "fast", metadata=(("sluice-class", "fast"),))
        data = filetype_input(rows=9)
        request, tensor = self.request()
        del tensor.shape[:]
        tensor.shape.extend([9, 2048])
        request.raw_input_contents[0] = data.tobytes()
        self.assertFails(request, code.INVALID_ARGUMENT, "8")

    def test_what_is_not_served_says_so(self):
        for call in (self.client.get_system_shared_memory_status, self.client.get_cuda_shared_memory_status):
            with self.assertRaises(InferenceServerException) as caught:
                call()
            self.assertEqual(caught.exception.status(), "StatusCode.UNIMPLEMENTED")

    def test_log_settings(self):
        settings = self.client.get_log_settings(as_json=True)["settings"]
        self.assertEqual({name: settings[name]["bool_param"] for name in ("log_info", "log_warning", "log_error")},
                         {"log_info": True, "log_warning": True, "log_error": True})
        self.assertEqual(settings["log_format"]["string_param"], "ISO8601")
        self.assertEqual(settings["log_verbose_level"].get("uint32_param", 0), 0)
        changed = self.client.update_log_settings({"log_info": False, "log_verbose_level": 0, "log_format": "ISO8601"})
        self.assertFalse(changed.settings["log_info"].bool_param)
        self.assertFalse(self.client.get_log_settings().settings["log_info"].bool_param)
        self.assertTrue(self.client.update_log_settings({"log_info": True}).settings["log_info"].bool_param)
        for wrong in ({"log_verbose_level": 1}, {"log_file": "/tmp/log"}, {"log_format": "default"},
                      {"log_colour": True}):
            with self.assertRaises(InferenceServerException) as caught:
                self.client.update_log_settings({"log_warning": False, **wrong})
            self.assertEqual(caught.exception.status(), "StatusCode.INVALID_ARGUMENT")
            self.assertIn(next(iter(wrong)), caught.exception.message())
        self.assertTrue(self.client.get_log_settings().settings["log_warning"].bool_param)

    def test_trace_settings(self):
        for model in (None, "filetype"):
            settings = self.client.get_trace_settings(model_name=model).settings
            self.assertEqual({name: list(value.value) for name, value in settings.items()}, {"trace_level": ["OFF"]})
        self.client.update_trace_settings(settings={"trace_level": ["OFF"]})
        self.client.update_trace_settings(settings={"trace_level": None})
        for wrong in ({"trace_level": ["TIMESTAMPS"]}, {"trace_rate": "1"}, {"trace_file": "/tmp/trace"}):
            with self.assertRaises(InferenceServerException) as caught:
                self.client.update_trace_settings(settings=wrong)
            self.assertEqual(caught.exception.status(), "StatusCode.INVALID_ARGUMENT")
            self.assertIn(next(iter(wrong)), caught.exception.message())
        with self.assertRaises(InferenceServerException) as caught:
            self.client.get_trace_settings(model_name="nobody")
        self.assertEqual(caught.exception.status(), "StatusCode.NOT_FOUND")

    def test_metrics_are_scraped(self):
        self.infer()
        text = urllib.request.urlopen(self.server.metrics + "/metrics", timeout=10).read().decode()
        for name in ("sluice_request_duration_seconds_bucket", "sluice_stage_duration_seconds_bucket",
                     "sluice_requests_total", "nv_inference_request_success", "sluice_build_info"):
            self.assertIn("\n" + name + "{", text)
        self.assertNotIn("nv_gpu_", text)  # the host device is no GPU
        self.assertEqual(urllib.request.urlopen(self.server.metrics + "/readyz", timeout=10).status, 200)


if __name__ == "__main__":
    server_process.main("__main__")
