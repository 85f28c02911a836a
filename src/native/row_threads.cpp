#include "row_threads.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <vector>

#include "shared_threads.h"
#include "threads.h"

namespace forerun {

void for_rows(std::size_t count, std::size_t threads,
              const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> thrown(std::max<std::size_t>(threads, 1));
  const auto do_share = [&](std::size_t thread, std::size_t of) {
    const Share share(count, thread, of);
    try {
      for (std::size_t i = share.first; i < share.last; ++i) work(i);
    } catch (...) {
      thrown[thread] = std::current_exception();
    }
  };
  const auto on_threads = [&] {
    try {
      return run_shared(threads, [&](std::size_t thread) { do_share(thread, threads); });
    } catch (const std::system_error&) {
      return false;
    }
  };
  if (std::min(count, threads) <= 1 || !on_threads()) do_share(0, 1);
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
}

}  // namespace forerun
