// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_RPC_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SLUICE_RPC_TSAN 1
#endif

#ifdef SLUICE_RPC_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace sluice::rpc {

/// What a completion queue hands back when an operation is over. The object behind a tag must stay until its event has
/// been handled; the event may be handled on another thread before the call that started the operation has returned.
class Tag {
 public:
  /// Runs on an I/O thread. Must not block. May destroy the object that holds the tag.
  virtual void OnEvent(bool ok) = 0;

 protected:
  ~Tag() = default;
};

/// The only two places where a tag crosses into gRPC and back. gRPC's queue orders the two, but Debian's build of it is
/// not instrumented, so ThreadSanitizer is told.
inline void* ToQueue(Tag& tag) {
#ifdef SLUICE_RPC_TSAN
  __tsan_release(&tag);
#endif
  return &tag;
}

inline Tag& FromQueue(void* from_queue) {
  Tag* const tag = static_cast<Tag*>(from_queue);
#ifdef SLUICE_RPC_TSAN
  __tsan_acquire(tag);
#endif
  return *tag;
}

/// A tag that calls a member function of its owner, so that one call can have several operations under way.
template <class Owner, void (Owner::*kMethod)(bool)>
class MemberTag final : public Tag {
 public:
  explicit MemberTag(Owner& owner) : owner_(owner) {}
  void OnEvent(bool ok) override { (owner_.*kMethod)(ok); }

 private:
  Owner& owner_;
};

}  // namespace sluice::rpc
