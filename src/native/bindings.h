// What each bind_*.cpp adds to the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace forerun {

void bind_noise(nanobind::module_& m);
void bind_matrix(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_pass(nanobind::module_& m);
void bind_machine(nanobind::module_& m);
void bind_warp(nanobind::module_& m);
void bind_likeliest(nanobind::module_& m);

}  // namespace forerun
