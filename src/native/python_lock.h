// Python's lock: given back while native work runs, and taken again.
//
// A daemon thread may still be at work when Python ends. Python up to 3.13 then ends the thread
// by unwinding it as it takes the lock, and a C++ frame on the way that must not throw would end
// the whole process with an error. So the thread halts here, as later versions have it, and ends
// with the process.
#pragma once

#include <unistd.h>

#include <nanobind/nanobind.h>

namespace forerun {

template <typename Take>
auto taken_or_halted(Take take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) pause();
  }
}

// For the length of a block, other Python threads may run.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    taken_or_halted([this] { PyEval_RestoreThread(state_); });
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* const state_;
};

// For the length of a block, this thread may use Python.
class Acquired {
 public:
  Acquired() : state_(taken_or_halted([] { return PyGILState_Ensure(); })) {}
  ~Acquired() { PyGILState_Release(state_); }
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace forerun
