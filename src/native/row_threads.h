// What is done to the rows of a pass once it has ended, on as many threads as the pass had.
#pragma once

#include <cstddef>
#include <functional>

namespace forerun {

// Calls work(i) for each i < count, on up to `threads` threads that all callers of the process
// share; who finds them busy, or gets none of the system, does without. What `work` throws, one of
// its exceptions, is thrown once all have returned.
void for_rows(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace forerun
