// Threads that all callers of the process take turns in using, so that those who work one after
// the other, such as a pass and the choice of tokens from its logits, find them awake.
#pragma once

#include <cstddef>
#include <functional>

namespace forerun {

// Calls work(thread) in so many threads, the caller's among them, and returns when all have
// returned. `work` must not throw. False, and nothing was called, while others use these threads.
// Throws std::system_error if the system gives no more threads; nothing was called then either.
bool run_shared(std::size_t threads, const std::function<void(std::size_t)>& work);

// Tells those that sleep that there will be work in a moment.
void wake_shared(std::size_t threads);

}  // namespace forerun
