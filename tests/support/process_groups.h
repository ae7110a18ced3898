// Process groups for tests: each "process" is a thread with a ProcessGroup of its own.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "distributed/process_group.h"

namespace draftsmith::testing_support {

// Returns a port of the loopback interface that was free a moment ago.
inline int64_t free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  socklen_t length = sizeof(address);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

// Returns the launch of process `rank` on this machine.
inline Launch local_launch(int64_t rank, int64_t size, int64_t port) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .host = "127.0.0.1", .port = port};
}

// Runs `work` in each process of a group and returns when all have ended. Throws what the process of the lowest rank
// threw. One process is ProcessGroup::single().
inline void run_in_group(int64_t size, const std::function<void(ProcessGroup&)>& work,
                         std::chrono::seconds timeout = std::chrono::seconds(60)) {
  if (size == 1) return work(ProcessGroup::single());
  // c10d's record of operations belongs to the process, and its table of groups has no lock: it is for one group.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const int64_t port = free_port();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ProcessGroup world(local_launch(rank, size, port), {.timeout = timeout});
        work(world);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace draftsmith::testing_support
