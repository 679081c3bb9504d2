# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a real sluice-server on free ports for a test, and stops it cleanly."""
import argparse
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class ServerProcess:
    """The server's process; `ready` is the line it prints when it is ready. `open_files` limits its descriptors."""

    def __init__(self, binary, *flags, repository=ROOT / "models", environment=None, open_files=None):
        def limit():
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
        self._log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [binary, "--model-repository", str(repository), "--address", "127.0.0.1", "--grpc-port", "0",
             "--metrics-port", "0", *flags],
            stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, preexec_fn=limit)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(f"the server did not start:\n{self.log()}")
        self.ready = json.loads(line)
        self.grpc = f"127.0.0.1:{self.ready['grpc_port']}"
        self.metrics = f"http://127.0.0.1:{self.ready['metrics_port']}"

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def stop(self, timeout=60):
        """Sends SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()


class OneServer:
    """For test cases whose tests share one server of the demo repository, `cls.server`, which must end well."""

    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(sys.modules[cls.__module__].SERVER_BINARY)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{cls.server.log()}")


def main(module):
    """Runs the module's tests against the binary named on the command line."""
    parser = argparse.ArgumentParser(description=sys.modules[module].__doc__)
    parser.add_argument("--server", required=True, help="path of sluice-server")
    parser.add_argument("tests", nargs="*", help="names of tests; all by default")
    arguments = parser.parse_args()
    sys.modules[module].SERVER_BINARY = arguments.server
    unittest.main(module=module, argv=[sys.argv[0], *arguments.tests], verbosity=2)
