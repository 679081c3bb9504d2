// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "rpc_fixture.h"
#include "server/rpc/health_check.h"
#include "tests/support/temporary_folder.h"

namespace sluice::rpc {
namespace {

using testing::HasSubstr;

class RpcListenTest : public RpcTest {
 protected:
  RpcOptions WithSocket() const {
    RpcOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.unix_socket = path_;
    return options;
  }
  bool SocketAnswers() const {
    server::HealthProbe probe;
    probe.unix_socket = path_;
    return CheckHealth(probe);
  }

  const TemporaryFolder folder_;
  const std::string path_ = absl::StrCat(folder_.path(), "/sluice.sock");
};

/// What a process that was killed leaves behind.
void LeaveSocket(const std::string& path) {
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(descriptor);
}

// Goal: every way to write an address serves, and no two servers share one. Method: start twice on each, ask over IPv4.
TEST_F(RpcListenTest, Addresses) {
  for (const char* address : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    RpcOptions options;
    options.address = address;
    options.port = 0;
    auto started = RpcServer::Start(options, backend_, observer_, clock_);
    ASSERT_TRUE(started.ok()) << started.status();
    server::HealthProbe probe;
    probe.grpc_port = (*started)->port();
    EXPECT_TRUE(CheckHealth(probe)) << address;
    options.port = (*started)->port();
    EXPECT_EQ(RpcServer::Start(options, backend_, observer_, clock_).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

// Goal: the socket serves beside the port and is gone with the server. Method: one call each.
TEST_F(RpcListenTest, SocketServesBesideThePort) {
  StartServer(WithSocket());
  EXPECT_TRUE(SocketAnswers());
  server::HealthProbe probe;
  probe.grpc_port = server_->port();
  EXPECT_TRUE(CheckHealth(probe));
  server_->Stop();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// Goal: a dead process's socket is no obstacle. Method: a socket that nobody listens on.
TEST_F(RpcListenTest, SocketOfADeadProcessIsReplaced) {
  LeaveSocket(path_);
  StartServer(WithSocket());
  EXPECT_TRUE(SocketAnswers());
}

// Goal: neither a living server's socket nor a file is taken away. Method: start beside each; the first server and the
// file are still there.
TEST_F(RpcListenTest, WhatIsInUseIsLeftAlone) {
  StartServer(WithSocket());
  const absl::Status in_use = RpcServer::Start(WithSocket(), backend_, observer_, clock_).status();
  EXPECT_EQ(in_use.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(in_use.message()), HasSubstr(path_));
  EXPECT_TRUE(SocketAnswers());
  server_->Stop();

  std::ofstream(path_) << "a file";
  const absl::Status a_file = RpcServer::Start(WithSocket(), backend_, observer_, clock_).status();
  EXPECT_EQ(a_file.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(a_file.message()), HasSubstr(path_));
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

// Goal: the bounds of connections reach the wire. Method: more calls at once than a connection may have; the first are
// answered only when the test says so, and the next arrives only then.
TEST_F(RpcListenTest, StreamsOfAConnectionAreBounded) {
  RpcOptions options;
  options.connections.max_concurrent_streams = 2;
  StartServer(options);
  auto stub = NewStub();
  AsyncCall first(*stub, EchoRequest());
  AsyncCall second(*stub, EchoRequest());
  observer_.AwaitReceived(2);
  AsyncCall third(*stub, EchoRequest());
  // Another connection is not in the way of the first one, and by its answer the third call would have come too.
  auto other = NewStub();
  AsyncCall elsewhere(*other, EchoRequest());
  observer_.AwaitReceived(3);
  EXPECT_EQ(observer_.received(), 3);
  for (int i = 0; i < 3; ++i) {
    const auto request = backend_.Take();
    request->Finish(EchoResult(*request));
  }
  EXPECT_TRUE(elsewhere.Await().ok());
  const auto request = backend_.Take();
  request->Finish(EchoResult(*request));
  EXPECT_TRUE(first.Await().ok());
  EXPECT_TRUE(second.Await().ok());
  EXPECT_TRUE(third.Await().ok());
}

// Goal: reflection is there only when asked for, although the library would turn it on everywhere. Method: list the
// services.
TEST_F(RpcListenTest, ReflectionOnlyWhenAskedFor) {
  const std::string list_services("\x3a\x01*");
  for (const bool on : {true, false}) {
    RpcOptions options;
    options.reflection = on;
    StartServer(options);
    EXPECT_EQ(CallRaw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services).error_code(),
              on ? grpc::StatusCode::OK : grpc::StatusCode::UNIMPLEMENTED);
    server_->Stop();
  }
}

// Goal: connections end at their age and when idle, and clients go on without an error. Method: both as short as can
// be; calls on one channel until it has seen its connection go.
TEST_F(RpcListenTest, ConnectionsEndAndClientsGoOn) {
  for (const bool idle : {false, true}) {
    RpcOptions options;
    (idle ? options.connections.max_idle : options.connections.max_age) = absl::Milliseconds(50);
    StartServer(options);
    const auto channel = NewChannel();
    const auto stub = inference::GRPCInferenceService::NewStub(channel);
    const auto call = [&stub] {
      grpc::ClientContext context;
      inference::ServerLiveResponse response;
      return stub->ServerLive(&context, {}, &response).ok();
    };
    ASSERT_TRUE(call());
    const gpr_timespec end = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(60, GPR_TIMESPAN));
    EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, end));
    EXPECT_TRUE(call());
    server_->Stop();
  }
}

}  // namespace
}  // namespace sluice::rpc
