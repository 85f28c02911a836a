// The Python module forerun._native: one bind_*.cpp a subject.

#include "bindings.h"

NB_MODULE(_native, m) {
  m.doc() = "Forerun's compiled twins; the package's numpy code is their slow counterpart.";
  forerun::bind_noise(m);
  forerun::bind_warp(m);
  forerun::bind_matrix(m);
  forerun::bind_pass(m);
  forerun::bind_machine(m);
}
