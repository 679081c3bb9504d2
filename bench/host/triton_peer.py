#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""What a request costs beside a bare gRPC echo: Sluice, and NVIDIA Triton with a Python model that returns its input.

Both servers run on this machine at once and are called in turn by bench/overhead, whose table this prints; the row of
Triton is called "Triton, Python backend" there. Its model is in Python since that is the only backend in the package, and
answers with all of its input, where Sluice's probes answer with one number; each has an echo that gives its own answer.
exit codes: 0 measured, 1 failed or beyond a limit, 2 usage
"""
import argparse
import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import tritonclient.grpc as tritonclient
from tritonclient.utils import InferenceServerException

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import server_process  # noqa: E402: the path is set above

NAME = "Triton, Python backend"
MODEL = '''import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        values = (triton.get_input_tensor_by_name(request, "{input}").as_numpy() for request in requests)
        return [triton.InferenceResponse([triton.Tensor("{output}", value)]) for value in values]
'''
CONFIG = '''backend: "python"
max_batch_size: 0
input [ {{ name: "{input}" data_type: TYPE_FP32 dims: {shape} }} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: {shape} }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
'''
START_SECONDS = 120


def write_model(repository, client, model):
    """The same name and input as Sluice's, so that both get the same bytes."""
    about = client.get_model_metadata(model)
    shape = [1 if size < 0 else size for size in about.inputs[0].shape]
    words = {"input": about.inputs[0].name, "output": about.outputs[0].name, "shape": shape}
    folder = repository / model / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(MODEL.format(**words))
    (folder.parent / "config.pbtxt").write_text(CONFIG.format(**words))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def beside(triton, address, models):
    """Triton with models of these names, as the server at `address` describes them; gives the flags of bench/overhead.
    `triton` is the folder that scripts/fetch_triton.sh wrote. RuntimeError with Triton's log when it does not get ready."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile(mode="w+") as log:
        with tritonclient.InferenceServerClient(address) as client:
            for model in models:
                write_model(pathlib.Path(folder), client, model)
        port = free_port()
        process = subprocess.Popen(
            [triton / "run", "--model-repository", folder, "--grpc-address", "127.0.0.1", "--grpc-port", str(port),
             "--allow-http", "false", "--allow-metrics", "false"], stdout=log, stderr=subprocess.STDOUT)
        try:
            if not is_ready(process, f"127.0.0.1:{port}"):
                log.seek(0)
                raise RuntimeError(f"Triton did not become ready:\n{log.read()}")
            yield ["--peer", f"{NAME}=127.0.0.1:{port}"]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def is_ready(process, address):
    """Waits for it, within a bound."""
    end = time.monotonic() + START_SECONDS
    with tritonclient.InferenceServerClient(address) as client:
        while time.monotonic() < end and process.poll() is None:
            try:
                if client.is_server_ready():
                    return True
            except InferenceServerException:
                pass
            time.sleep(0.1)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="further arguments go to bench/overhead, for example --connections 64 --json FILE")
    parser.add_argument("--server", required=True, help="path of sluice-server")
    parser.add_argument("--overhead", required=True, help="path of bench/overhead's program")
    parser.add_argument("--triton", required=True, help="folder that scripts/fetch_triton.sh wrote")
    parser.add_argument("--repository", required=True, help="folder probes that scripts/generate_gpu_models.sh wrote")
    parser.add_argument("--server-flags", default="[]", help="further flags of sluice-server, as a JSON list")
    arguments, further = parser.parse_known_args()
    repository = pathlib.Path(arguments.repository)
    models = sorted((path.name for path in repository.glob("probe_*")), key=lambda name: int(name[6:-1]))
    if not models:
        parser.error(f"there is no probe in {repository}")
    server = server_process.ServerProcess(arguments.server, *json.loads(arguments.server_flags), repository=repository)
    try:
        with beside(pathlib.Path(arguments.triton), server.grpc, models) as peer:
            code = subprocess.run([arguments.overhead, "--url", server.grpc, "--models", ",".join(models), *peer,
                                   *further]).returncode
    except RuntimeError as error:
        print(f"triton_peer: {error}", file=sys.stderr)
        code = 1
    finally:
        server.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
