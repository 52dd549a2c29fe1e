// SPDX-License-Identifier: MIT
// A frontend's queue that many threads use, each of which waits for its own requests. There is no
// thread between them and the ring: one of those who wait looks for answers, for all.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <pvring/testing/strict_queue.hpp>
#include <semaphore>
#include <span>
#include <thread>
#include <vector>

namespace nbd_frontend {

class shared_queue {
 public:
  /// \param segments of a request at most
  shared_queue(pvring::testing::strict_queue& queue, std::uint32_t segments)
      : queue_(queue), most_bytes_(std::size_t{segments} * 4096) {}
  shared_queue(const shared_queue&) = delete;
  shared_queue& operator=(const shared_queue&) = delete;

  /// Each waits until all of it is done. 0 or an errno. \pre whole sectors
  int read(std::uint64_t offset, std::span<std::byte> into) {
    return run(pvring::protocol::blkif::operation::read, offset, into);
  }
  int write(std::uint64_t offset, std::span<const std::byte> from) {
    // A request that carries data out leaves the buffer alone.
    return run(pvring::protocol::blkif::operation::write, offset,
               {const_cast<std::byte*>(from.data()), from.size()});
  }
  int flush() { return run_one({.operation = pvring::protocol::blkif::operation::flush}); }
  int discard(std::uint64_t offset, std::uint64_t bytes) {
    return run_one({.operation = pvring::protocol::blkif::operation::discard,
                    .sector = offset / sector,
                    .sectors = bytes / sector});
  }

 private:
  static constexpr std::uint64_t sector = pvring::protocol::blkif::sector_bytes;

  /// What one thread waits for: the parts of its request.
  struct waiter {
    std::size_t left = 0;  // parts that are not answered
    int error = 0;
    std::binary_semaphore woken{0};
    bool done() const noexcept { return left == 0; }
  };
  /// One request on the ring. Its address is the cookie.
  struct part {
    waiter* of = nullptr;
    std::span<std::byte> data;
  };

  static part& part_of(std::uint64_t cookie) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a cookie is a number, and this one was an address
    return *reinterpret_cast<part*>(cookie);
  }

  int run(std::uint8_t operation, std::uint64_t offset, std::span<std::byte> data) {
    waiter self;
    std::vector<part> parts;
    for (std::size_t at = 0; at < data.size(); at += most_bytes_) {
      parts.push_back({&self, data.subspan(at, std::min(most_bytes_, data.size() - at))});
    }
    self.left = parts.size();
    std::vector<pvring::testing::block_segment> segments;
    for (part& one : parts) {
      segments.clear();
      append_segments(segments, one.data.size() / sector);
      submit({.operation = operation,
              .sector = offset / sector,
              .segments = segments,
              .cookie = reinterpret_cast<std::uintptr_t>(&one)},
             one.data);
      offset += one.data.size();
    }
    return wait_for(self);
  }

  int run_one(pvring::testing::block_request request) {
    waiter self;
    part one{&self, {}};
    self.left = 1;
    request.cookie = reinterpret_cast<std::uintptr_t>(&one);
    submit(request, {});
    return wait_for(self);
  }

  void submit(const pvring::testing::block_request& request, std::span<const std::byte> data) {
    while (!queue_.submit(request, data)) {
      // Nothing of this under our own lock: the queue has one too, and takes ours below it.
      const bool gone = queue_.in_flight() == 0 && queue_.space() == 0;
      (void)queue_.publish();
      std::unique_lock lock(mutex_);
      if (gone) {
        answered(part_of(request.cookie), EIO);
        return;
      }
      make_room(lock);
    }
    (void)queue_.publish();
  }

  int wait_for(waiter& self) {
    {
      std::unique_lock lock(mutex_);
      if (self.done()) {
        return self.error;
      }
      if (led_) {
        followers_.push_back(&self);
        lock.unlock();
        self.woken.acquire();  // done, or to lead
        lock.lock();
        if (self.done()) {
          return self.error;
        }
      }
      led_ = true;
      lead(lock, self);
    }
    return self.error;
  }

  /// The ring is full. Only who leads takes answers: else one that has its own could sleep.
  void make_room(std::unique_lock<std::mutex>& lock) {
    if (led_) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return;
    }
    led_ = true;
    lock.unlock();
    if (take_answers() == 0) {
      (void)queue_.wait(std::chrono::milliseconds(10));
    }
    lock.lock();
    pass_on();
  }

  /// Looks for answers until this thread has its own, then leaves that to another one.
  void lead(std::unique_lock<std::mutex>& lock, const waiter& self) {
    while (!self.done()) {
      lock.unlock();
      if (take_answers() == 0) {
        (void)queue_.wait(std::chrono::seconds(1));
      }
      lock.lock();
    }
    pass_on();
  }

  void pass_on() {
    led_ = !followers_.empty();
    if (led_) {
      waiter& next = *followers_.front();
      followers_.pop_front();
      next.woken.release();
    }
  }

  std::size_t take_answers() {
    return queue_.poll([this](const pvring::testing::block_completion& end) {
      part& one = part_of(end.cookie);
      if (end.okay() && end.operation == pvring::protocol::blkif::operation::read) {
        end.copy_to(one.data);
      }
      const std::lock_guard guard(mutex_);
      answered(one, end.okay()                                               ? 0
                    : end.is(pvring::protocol::blkif::status::not_supported) ? EOPNOTSUPP
                                                                             : EIO);
    });
  }

  /// \pre the mutex is held
  void answered(part& one, int error) {
    waiter& who = *one.of;
    who.error = who.error != 0 ? who.error : error;
    if (--who.left == 0) {
      // Who leads, or has not begun to wait, finds out by itself.
      if (std::erase(followers_, &who) != 0) {
        who.woken.release();
      }
    }
  }

  pvring::testing::strict_queue& queue_;
  const std::size_t most_bytes_;
  std::mutex mutex_;
  bool led_ = false;
  std::list<waiter*> followers_;
};

}  // namespace nbd_frontend
