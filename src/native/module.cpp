// The Python module forerun._native: one bind_*.cpp a subject.

#include <exception>
#include <system_error>

#include "bindings.h"

namespace {

// What the system refuses, such as one thread more, is an OSError.
void translate_system_error(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& refusal) {
    PyErr_SetString(PyExc_OSError, refusal.what());
  }
}

}  // namespace

NB_MODULE(_native, m) {
  // At Python's end, what a daemon thread still holds is no leak that a user should read of.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(translate_system_error);
  m.doc() = "Forerun's compiled twins; the package's numpy code is their slow counterpart.";
  forerun::bind_noise(m);
  forerun::bind_warp(m);
  forerun::bind_likeliest(m);
  forerun::bind_matrix(m);
  forerun::bind_attention(m);
  forerun::bind_pass(m);
  forerun::bind_machine(m);
}
