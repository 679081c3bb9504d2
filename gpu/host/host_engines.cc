// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The running side of HostStreams: engines (compute and, with copiers, one per copy direction), and how streams move
// between "nowhere", "ready", "running" and "waiting".
#include <cstring>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gpu/host/host_streams.h"

namespace sluice::gpu::host {
namespace {

using Place = HostStream::Place;

absl::Status RunNode(const HostNode& node) {
  if (node.kind == HostNode::Kind::kKernel) return node.kernel->Run(node.args);
  // memmove: a pinned span and a device span may overlap, both being plain host memory.
  std::memmove(node.destination, node.source, node.size_bytes);
  return absl::OkStatus();
}

void SetTeamSize(int threads) {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#else
  static_cast<void>(threads);
#endif
}

}  // namespace

void HostStreams::StartThreads() {
  for (int i = 0; i < options_.compute_thread_count; ++i) {
    threads_.emplace_back(absl::StrCat("host", options_.index, "-comp", i), [this] {
      SetTeamSize(options_.threads);
      RunEngine(kComputeEngine);
    });
  }
  if (!options_.copiers) return;
  threads_.emplace_back(absl::StrCat("host", options_.index, "-h2d"), [this] { RunEngine(kToDeviceEngine); });
  threads_.emplace_back(absl::StrCat("host", options_.index, "-d2h"), [this] { RunEngine(kToHostEngine); });
}

HostStreams::EngineIndex HostStreams::EngineOf(const HostNode& node) const {
  if (!options_.copiers || node.kind == HostNode::Kind::kKernel) return kComputeEngine;
  return node.kind == HostNode::Kind::kCopyToDevice ? kToDeviceEngine : kToHostEngine;
}

const HostNode& HostStreams::HeadNode(const HostStream* stream) const {
  const HostEntry& head = stream->head();
  return head.kind == HostEntry::Kind::kGraph ? head.graph->nodes[stream->graph_cursor] : head.node;
}

void HostStreams::MakeReady(HostStream* stream) {
  const EngineIndex index = EngineOf(HeadNode(stream));
  const auto runs_before = [index](const HostStream* a, const HostStream* b) {
    if (index == kComputeEngine && a->priority != b->priority) return a->priority > b->priority;
    return a->head().sequence < b->head().sequence;  // Copies ignore priority, as copy engines do.
  };
  EngineQueue& engine = engines_[index];
  HostStream** link = &engine.ready;
  while (*link != nullptr && runs_before(*link, stream)) link = &(*link)->next;
  stream->next = *link;
  *link = stream;
  stream->place = Place::kReady;
  engine.work.NotifyOne();
}

void HostStreams::Retire(HostStream* stream, HostStream** released) {
  HostEntry& head = stream->head();
  if (head.graph != nullptr && --head.graph->pending == 0) unused_.NotifyAll();
  if (head.timed != nullptr && --head.timed->pending == 0) unused_.NotifyAll();
  head.graph = nullptr;
  head.timed = nullptr;
  stream->graph_cursor = 0;
  stream->first = (stream->first + 1) % stream->ring.size();
  --stream->count;
  const uint64_t completed = stream->completed.load(std::memory_order_relaxed) + 1;
  stream->completed.store(completed, std::memory_order_release);
  if (stream->space_waiter_count > 0) stream->space.NotifyAll();
  if (completed >= stream->nearest_wanted) {
    stream->nearest_wanted = HostStream::kNobody;  // Who wants a later position says so again.
    stream->done.NotifyAll();
  }
  HostStream** link = &stream->waiters;
  while (*link != nullptr) {
    HostStream* waiter = *link;
    if (waiter->head().mark.position > completed) {
      link = &waiter->next;
      continue;
    }
    *link = waiter->next;
    waiter->place = Place::kNowhere;
    waiter->next = *released;
    *released = waiter;
  }
}

void HostStreams::SettleOne(HostStream* stream, HostStream** released) {
  while (stream->count > 0) {
    HostEntry& head = stream->head();
    switch (head.kind) {
      case HostEntry::Kind::kTimedRecord:
        // An older record of an event that was recorded again meanwhile is not its time.
        if (head.timed->mark == HostMark{stream, stream->completed.load(std::memory_order_relaxed) + 1}) {
          head.timed->reached_at = clock_.Now();
        }
        break;
      case HostEntry::Kind::kWait:
        if (!lost() && !head.mark.stream->Reached(head.mark.position)) {
          stream->place = Place::kWaiting;
          stream->next = head.mark.stream->waiters;
          head.mark.stream->waiters = stream;
          return;
        }
        break;
      case HostEntry::Kind::kGraph:
        if (stream->graph_cursor < head.graph->nodes.size()) return MakeReady(stream);
        break;
      case HostEntry::Kind::kNode:
        return MakeReady(stream);
    }
    Retire(stream, released);
  }
}

void HostStreams::Settle(HostStream* stream) {
  HostStream* released = nullptr;
  SettleOne(stream, &released);
  while (released != nullptr) {
    HostStream* next = released;
    released = next->next;
    SettleOne(next, &released);
  }
}

void HostStreams::RunEngine(EngineIndex index) {
  mutex_.Lock();
  while (true) {
    EngineQueue& engine = engines_[index];
    while (engine.ready == nullptr && !stopping_) engine.work.Wait(mutex_);
    if (engine.ready == nullptr) break;
    HostStream* stream = engine.ready;
    engine.ready = stream->next;
    stream->place = Place::kRunning;
    const HostNode node = HeadNode(stream);
    const bool run = !lost();
    mutex_.Unlock();
    if (run) {
      if (const absl::Status status = RunNode(node); !status.ok()) MarkLost(status);
    }
    mutex_.Lock();
    stream->place = Place::kNowhere;
    HostStream* released = nullptr;
    if (stream->head().kind == HostEntry::Kind::kNode) {
      Retire(stream, &released);
    } else {
      ++stream->graph_cursor;  // Settle retires the graph after its last node.
    }
    Settle(stream);
    while (released != nullptr) {
      HostStream* next = released;
      released = next->next;
      Settle(next);
    }
  }
  mutex_.Unlock();
}

void HostStreams::MarkLost(const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (lost()) return;
  lost_reason_ = reason.ToString();
  lost_.store(true, std::memory_order_release);
  Log(Severity::kError, "host device lost", {{"index", options_.index}, {"reason", lost_reason_}});
  // Engines drop what is ready. What waits for other streams must not wait on.
  for (const std::unique_ptr<HostStream>& stream : streams_) {
    while (HostStream* waiter = stream->waiters) {
      stream->waiters = waiter->next;
      waiter->place = Place::kNowhere;
      Settle(waiter);
    }
    stream->space.NotifyAll();
    stream->done.NotifyAll();
  }
}

}  // namespace sluice::gpu::host
