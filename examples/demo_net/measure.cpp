// SPDX-License-Identifier: MIT
// Numbers come from the kernel's own tools; costs from the backends' counters around the run with
// four streams.
#include "measure.hpp"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <thread>

#include "guest.hpp"

namespace demo_net {
namespace {

using namespace std::chrono_literals;
namespace net = pvring::net;

constexpr const char* left_address = "10.77.0.1";
constexpr const char* right_address = "10.77.0.2";

/// What both backends have done so far.
struct cost {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t grant_calls = 0;
  std::uint64_t grant_operations = 0;
  std::uint64_t notifications = 0;
  double cpu_seconds = 0;

  [[nodiscard]] cost since(const cost& before) const {
    return {packets - before.packets,
            bytes - before.bytes,
            slots - before.slots,
            grant_calls - before.grant_calls,
            grant_operations - before.grant_operations,
            notifications - before.notifications,
            cpu_seconds - before.cpu_seconds};
  }
};

// Of the threads that serve queues, by the scheduler's own account.
double queue_threads_seconds() {
  double sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    double nanoseconds = 0;
    if (name.starts_with("pvring-net") && std::ifstream(task.path() / "schedstat") >> nanoseconds) {
      sum += nanoseconds * 1e-9;
    }
  }
  return sum;
}

cost cost_of(const guest& left, const guest& right) {
  cost out;
  for (const guest* one : {&left, &right}) {
    for (const net::queue_statistics& q : one->statistics()) {
      out.packets += q.tx_packets + q.rx_packets;
      out.bytes += q.tx_bytes + q.rx_bytes;
      out.slots += q.tx_slots + q.rx_slots;
      out.grant_calls += q.grant_calls;
      out.grant_operations += q.grant_operations;
      out.notifications += q.notifications;
    }
  }
  out.cpu_seconds = queue_threads_seconds();
  return out;
}

void put_costs(const cost& spent, double seconds, outcome& out) {
  const auto packets = static_cast<double>(std::max<std::uint64_t>(spent.packets, 1));
  const auto per_packet = [&](std::uint64_t count) { return static_cast<double>(count) / packets; };
  out.packets_per_second = static_cast<double>(spent.packets) / 2 / seconds;
  out.grant_calls_per_packet = per_packet(spent.grant_calls);
  out.grant_operations_per_packet = per_packet(spent.grant_operations);
  out.notifications_per_packet = per_packet(spent.notifications);
  out.slots_per_packet = per_packet(spent.slots);
  // Each byte passes two backends.
  const double gib = static_cast<double>(spent.bytes) / 2 / (1024.0 * 1024 * 1024);
  out.backend_cpu_seconds_per_gib = gib > 0 ? spent.cpu_seconds / gib : 0;
}

double average_ping(const name_space& from) {
  const std::string printed = from.command(std::string("ping -c 10 -i 0.02 -q ") + right_address);
  // rtt min/avg/max/mdev = 0.035/0.046/0.066/0.009 ms
  const std::size_t at = printed.find("mdev = ");
  const std::size_t slash = at == std::string::npos ? at : printed.find('/', at);
  if (slash == std::string::npos) {
    throw std::runtime_error("ping says nothing of a time: " + printed);
  }
  return std::stod(printed.substr(slash + 1));
}

double iperf(const name_space& left, const name_space& right, int streams, bool back,
             double seconds) {
  std::exception_ptr failed;
  std::thread server([&] {
    try {
      (void)right.command("iperf3 -s -1 -J");
    } catch (...) {
      failed = std::current_exception();
    }
  });
  const std::string line = std::string("iperf3 -J -c ") + right_address + " -t " +
                           std::to_string(std::max(1, static_cast<int>(seconds))) + " -P " +
                           std::to_string(streams) + (back ? " -R" : "");
  double result = -1;
  std::string last;
  for (int attempt = 0; attempt < 50 && result < 0; ++attempt) {
    try {
      const auto told = nlohmann::json::parse(left.command(line));
      result = told.at("end").at("sum_received").at("bits_per_second").get<double>() * 1e-9;
    } catch (const std::exception& e) {
      last = e.what();  // the server may not listen yet
      std::this_thread::sleep_for(100ms);
    }
  }
  server.join();
  if (result < 0) {
    throw std::runtime_error("iperf3: " + last);
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
  return result;
}

std::string sha256(const std::vector<std::byte>& of) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_Digest(of.data(), of.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 is not to be had");
  }
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[digest[i] >> 4U];
    text += digits[digest[i] & 0xfU];
  }
  return text;
}

sockaddr_in address_of(const char* address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(7700);
  ::inet_pton(AF_INET, address, &out.sin_addr);
  return out;
}

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// Sends a file of random bytes from one guest to the other; what arrives.
std::vector<std::byte> transfer(const name_space& left, const name_space& right,
                                const std::vector<std::byte>& file) {
  pvring::unique_fd listener;
  right.inside([&] {
    listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in at = address_of(right_address);
    if (!listener ||
        ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(listener.get(), 1) != 0) {
      fail("listening");
    }
  });
  // A socket stays in the namespace that it was made in.
  std::exception_ptr failed;
  std::thread sender([&] {
    try {
      left.inside([&] {
        const pvring::unique_fd to(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in at = address_of(right_address);
        if (!to || ::connect(to.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
          fail("connecting");
        }
        for (std::size_t done = 0; done < file.size();) {
          const ssize_t some =
              ::send(to.get(), file.data() + done, file.size() - done, MSG_NOSIGNAL);
          if (some <= 0) {
            fail("sending");
          }
          done += static_cast<std::size_t>(some);
        }
      });
    } catch (...) {
      failed = std::current_exception();
      (void)::shutdown(listener.get(), SHUT_RDWR);
    }
  });
  std::vector<std::byte> arrived;
  const pvring::unique_fd from(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<std::byte> some(1U << 16U);
  for (ssize_t got = 0; from && (got = ::recv(from.get(), some.data(), some.size(), 0)) > 0;) {
    arrived.insert(arrived.end(), some.begin(), some.begin() + got);
  }
  sender.join();
  if (failed) {
    std::rethrow_exception(failed);
  }
  return arrived;
}

std::vector<std::byte> random_file(std::uint64_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> out(bytes);
  for (std::size_t at = 0; at + 8 <= out.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + at, &word, sizeof word);
  }
  return out;
}

}  // namespace

outcome measure(const settings& wanted, const combination& what,
                const std::function<void(const std::string&)>& say) {
  outcome out{.what = what};
  const name_space left_space;
  const name_space right_space;
  const auto host = pvring::platform::emulated_host::create();
  auto [left_end, right_end] = net::pair_uplink::make(wanted.queues);
  guest left(host, 3, left_end, what, wanted.queues);
  guest right(host, 4, right_end, what, wanted.queues);
  left.connect();
  right.connect();
  left.plug_into(left_space, left_address);
  right.plug_into(right_space, right_address);

  say("ping");
  out.ping_ms = average_ping(left_space);
  for (int i = 0; i < (wanted.smoke ? 1 : 4); ++i) {
    const int streams = i < 2 ? 1 : 4;
    say("iperf3, " + std::to_string(streams) + (streams == 1 ? " stream" : " streams") +
        (i % 2 == 0 ? "" : " back"));
    const cost before = cost_of(left, right);
    const auto start = std::chrono::steady_clock::now();
    out.gigabits[i] = iperf(left_space, right_space, streams, i % 2 != 0, wanted.seconds);
    if (i == 2 || wanted.smoke) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      put_costs(cost_of(left, right).since(before), took.count(), out);
    }
  }
  say("a file");
  const std::vector<std::byte> file = random_file(wanted.file_mib * 1024 * 1024);
  const std::vector<std::byte> arrived = transfer(left_space, right_space, file);
  out.sha256 = sha256(file);
  if (sha256(arrived) != out.sha256) {
    throw mismatch("a file of " + std::to_string(file.size()) +
                   " bytes arrived as another one of " + std::to_string(arrived.size()) + " bytes");
  }
  left.end();
  right.end();
  if (host.leaked_pages() != 0) {
    throw mismatch(std::to_string(host.leaked_pages()) + " pages were left mapped");
  }
  return out;
}

outcome measure_without_kernel(const settings& wanted, const combination& what) {
  outcome out{.what = what};
  const auto host = pvring::platform::emulated_host::create();
  auto [left_end, right_end] = net::pair_uplink::make(1);
  guest left(host, 3, left_end, what, 1);
  guest right(host, 4, right_end, what, 1);
  left.connect();
  right.connect();
  auto& from = left.front().queue(0);
  auto& to = right.front().queue(0);
  std::vector<std::byte> frame = random_file(1512);
  frame.resize(1514);
  frame[0] = std::byte{2};
  const std::uint64_t packets = wanted.smoke ? 20'000 : 500'000;
  const cost before = cost_of(left, right);
  const auto start = std::chrono::steady_clock::now();
  const auto last = start + 60s;
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
  while (got < packets) {
    std::memcpy(frame.data() + 14, &sent, sizeof sent);
    while (sent < packets && sent - got < 64 && from.send(frame)) {
      ++sent;
      std::memcpy(frame.data() + 14, &sent, sizeof sent);
    }
    (void)to.post();
    to.publish();
    from.publish();
    (void)from.poll();
    const std::uint64_t was = got;
    (void)to.poll([&](const pvring::testing::received_packet& packet) {
      std::uint64_t number = 0;
      std::memcpy(&number, packet.bytes.data() + 14, sizeof number);
      if (number != got || packet.bytes.size() != frame.size()) {
        throw mismatch("packet " + std::to_string(number) + " came where " + std::to_string(got) +
                       " was next");
      }
      ++got;
    });
    if (got == was) {
      to.wait(5ms);
    }
    if (std::chrono::steady_clock::now() > last) {
      throw mismatch("only " + std::to_string(got) + " packets arrived");
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  put_costs(cost_of(left, right).since(before), took.count(), out);
  out.gigabits[0] = static_cast<double>(packets * frame.size()) * 8e-9 / took.count();
  left.end();
  right.end();
  return out;
}

}  // namespace demo_net
