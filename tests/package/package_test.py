# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a project of somebody else builds on the installed client library and gets answers. Method: install it into an
empty folder, configure and build `consumer` with nothing but that folder, run it against a real server."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
import server_process  # noqa: E402


def run(*command):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="path of sluice-server")
    parser.add_argument("--build", required=True, help="build folder of Sluice")
    parser.add_argument("--cmake", default="cmake")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prefix, build = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "build")
        run(arguments.cmake, "--install", arguments.build, "--component", "client", "--prefix", prefix)
        run(arguments.cmake, "-S", HERE / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
        run(arguments.cmake, "--build", build)
        server = server_process.ServerProcess(arguments.server)
        try:
            run(build / "consumer", server.grpc)
        finally:
            code = server.stop()
        if code != 0:
            raise SystemExit(f"the server ended with {code}:\n{server.log()}")


if __name__ == "__main__":
    main()
