// Python's lock given back while native work runs.
#pragma once

#include <unistd.h>

#include <nanobind/nanobind.h>

namespace forerun {

// For the length of a block, other Python threads may run.
//
// A daemon thread may still be at work when Python ends. Python up to 3.13 then ends the thread
// by unwinding it, and a C++ frame on the way that must not throw would end the whole process with
// an error; so the thread halts here, as later versions have it, and ends with the process.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace forerun
