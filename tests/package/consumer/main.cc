// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Asks the demo model by a blocking call and by a future on the caller's own memory; both must agree.
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "client/client.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer HOST:PORT\n";
    return 2;
  }
  sluice::client::ClientOptions options;
  options.address = argv[1];
  const auto client = sluice::client::Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  const auto values = std::make_shared<const std::vector<int32_t>>(2048, 7);
  const absl::string_view bytes(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(int32_t));
  sluice::client::InferOptions infer;
  infer.request_class = sluice::RequestClass::kLatency;
  infer.hedge_after = absl::Seconds(10);
  auto future =
      (*client)->InferViewsAsync("filetype", {{"bytes", sluice::DataType::kInt32, {1, 2048}, bytes, values}}, infer);
  const auto blocking =
      (*client)->Infer("filetype", {{"bytes", sluice::DataType::kInt32, {1, 2048}, std::string(bytes)}});
  const auto reply = future.get();
  if (!reply.ok() || !blocking.ok()) {
    std::cerr << reply.status() << " " << blocking.status() << "\n";
    return 1;
  }
  if (reply->outputs.at(0).shape != std::vector<int64_t>{1, 214} ||
      reply->outputs[0].bytes != blocking->outputs.at(0).bytes) {
    std::cerr << "the answers differ\n";
    return 1;
  }
  std::cout << "answered by " << reply->model_name << " version " << reply->model_version << "\n";
  return 0;
}
