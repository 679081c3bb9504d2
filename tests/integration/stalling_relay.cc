// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/stalling_relay.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

namespace sluice::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

StallingRelay::StallingRelay(int server_port) : server_port_(server_port) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 8) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0 || pipe(wake_) != 0) {
    std::perror("relay");
    return;  // port() stays 0, so nothing connects
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::make_unique<Thread>("relay", [this] { Run(); });
}

StallingRelay::~StallingRelay() {
  stopping_ = true;
  Wake();
  thread_.reset();
  for (const Link& link : links_) {
    close(link.client);
    close(link.server);
  }
  close(listener_);
  close(wake_[0]);
  close(wake_[1]);
}

void StallingRelay::StallAfter(size_t sent_bytes) {
  stall_after_ = sent_bytes;
  Wake();
}

void StallingRelay::Wake() {
  const char byte = 0;
  if (write(wake_[1], &byte, 1) != 1) std::perror("relay");
}

void StallingRelay::Accept() {
  Link link;
  link.client = accept(listener_, nullptr, nullptr);
  link.server = socket(AF_INET, SOCK_STREAM, 0);
  // Small, so that a stalled connection takes little of what the server sends.
  const int receive_bytes = 4096;
  setsockopt(link.server, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
  const sockaddr_in address = Loopback(server_port_);
  if (connect(link.server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::perror("relay");
  links_.push_back(link);
}

size_t StallingRelay::Pass(int from, int to) {
  char buffer[65536];
  const ssize_t count = read(from, buffer, sizeof(buffer));
  if (count <= 0) return 0;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t written = send(to, buffer + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (written <= 0) return 0;
    sent += written;
  }
  return static_cast<size_t>(count);
}

void StallingRelay::Run() {
  while (!stopping_) {
    std::vector<pollfd> events = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Link& link : links_) {
      events.push_back({link.client, POLLIN, 0});
      // A negative descriptor is skipped. That the server closed is then not seen; the client's end closes too.
      events.push_back({stalled() ? -1 : link.server, POLLIN, 0});
    }
    if (poll(events.data(), events.size(), -1) < 0) continue;
    char byte;
    if (events[0].revents != 0 && read(wake_[0], &byte, 1) != 1) std::perror("relay");
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = links_[i];
      bool open = true;
      if (events[2 + 2 * i].revents != 0) {
        const size_t sent = Pass(link.client, link.server);
        sent_bytes_ += sent;
        open = sent > 0;
      }
      if (open && events[3 + 2 * i].revents != 0 && !stalled()) open = Pass(link.server, link.client) > 0;
      if (open) continue;
      close(link.client);
      close(link.server);
      link = Link();
    }
    std::erase_if(links_, [](const Link& link) { return link.client < 0; });
    if (events[1].revents != 0) Accept();
  }
}

}  // namespace sluice::testing
