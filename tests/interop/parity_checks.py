# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""What a server's answers are compared with: the same inputs, random and real, through ONNX Runtime on the CPU. The
comparison itself is checked by planting a swapped channel order and a transposed layout, which it must reject."""
import pathlib

import numpy as np
import onnxruntime

import server_process


def worst(actual, expected, relative, absolute):
    """Largest |a - b| as a multiple of what is allowed; at most 1 is a pass."""
    return float(np.max(np.abs(actual - expected) / (relative * np.abs(expected) + absolute)))


def resnet_images(count, seed):
    """Pictures with structure: gradients and blocks differ by channel, so that layout mistakes cannot hide."""
    random = np.random.RandomState(seed)
    grid = np.linspace(-1, 1, 224, dtype=np.float32)
    images = np.empty((count, 3, 224, 224), np.float32)
    for image in images:
        image[0] = grid[None, :] * random.uniform(0.5, 2)
        image[1] = grid[:, None] * random.uniform(0.5, 2)
        image[2] = np.kron(random.randn(14, 14), np.ones((16, 16)))
        image += random.randn(3, 224, 224) * 0.1
    return images


def file_features(path):
    """2,048 numbers of a real file: first and last kilobyte, 256 where there is none."""
    content = path.read_bytes()
    features = np.full(2048, 256, np.int32)
    head, tail = content[:1024], content[-1024:]
    features[:len(head)] = np.frombuffer(head, np.uint8)
    features[2048 - len(tail):] = np.frombuffer(tail, np.uint8)
    return features


class ParityChecks:
    """Test methods for a unittest.TestCase that has `models` (the repository's folder), `server_binary`, and
    `served(model, input name, array)`, which returns the first output."""

    def reference(self, model, data):
        session = onnxruntime.InferenceSession(str(self.models / model / "1" / "model.onnx"),
                                               providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: data})[0]

    def compare_filetype(self, what, data):
        expected = self.reference("filetype", data)
        for rows in (data[:1], data):
            actual = self.served("filetype", "bytes", rows)
            error = worst(actual, expected[:len(rows)], 1e-3, 1e-5)
            print(f"filetype {what}, {len(rows)} rows: {error:.4f} of the allowed error")
            self.assertLessEqual(error, 1)
            np.testing.assert_array_equal(actual.argmax(axis=1), expected[:len(rows)].argmax(axis=1))

    def test_filetype_random(self):
        self.compare_filetype("random", np.random.RandomState(3).randint(0, 257, (8, 2048)).astype(np.int32))

    def test_filetype_real_files(self):
        paths = [pathlib.Path(__file__), server_process.ROOT / "CMakeLists.txt", server_process.ROOT / "LICENSE",
                 self.models / "filetype" / "1" / "model.onnx", pathlib.Path(self.server_binary),
                 server_process.ROOT / "scripts" / "setup.sh"]
        self.compare_filetype("real files", np.stack([file_features(path) for path in paths]))

    def test_resnet50(self):
        for what, images in (("random", np.random.RandomState(5).randn(3, 3, 224, 224).astype(np.float32)),
                             ("structured", resnet_images(5, 6))):
            expected = self.reference("resnet50", images)
            actual = self.served("resnet50", "data", images)
            allowed = 1e-3 * np.abs(expected).max()
            error = worst(actual, expected, 1e-3, allowed)
            print(f"resnet50 {what}: {error:.4f} of the allowed error, argmax {actual.argmax(axis=1)}")
            self.assertLessEqual(error, 1)
            np.testing.assert_array_equal(actual.argmax(axis=1), expected.argmax(axis=1))
            # Planted mistakes: what a wrong layout or channel order would compute must not pass.
            swapped = self.served("resnet50", "data", np.ascontiguousarray(images[:, ::-1]))
            transposed = self.served("resnet50", "data", np.ascontiguousarray(images.transpose(0, 1, 3, 2)))
            as_nhwc = self.served("resnet50", "data",
                                  np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(images.shape))
            for name, wrong in (("swapped channels", swapped), ("transposed", transposed), ("NHWC", as_nhwc)):
                error = worst(wrong, expected, 1e-3, allowed)
                print(f"resnet50 {what}, planted {name}: {error:.1f} of the allowed error")
                self.assertGreater(error, 1)
