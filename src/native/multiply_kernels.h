// What the kernels of one instruction set are given, and where they are found.
//
// Each set has one source file, compiled with its own flags. Such a file must not call an inline
// function or template with external linkage (of the standard library, say): the linker keeps one
// copy of those for the whole program, and may keep the one that an older machine cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "activations.h"
#include "matrix.h"

namespace forerun {

// One panel of weights times one tile of rows.
struct PanelProduct {
  const std::uint8_t* weights;
  const std::uint8_t* next;  // what is read after this panel, worth fetching early
  std::size_t inputs;
  std::size_t outputs;  // how many of the panel's 16 to write
  ActivationTile x;
  float* out;  // of the tile's first row and the panel's first output
  std::size_t stride;
  const float* factors;  // of the tile's rows
};

// Where the groups of one row go: those of one tile, at the place of the row in it.
struct QuantisedRow {
  std::int8_t* values;
  float* scales;         // and, `rows` behind, scaled sums
  std::int32_t* starts;  // of 4 bits; then, each `rows` behind, of 8, and of the halves
  std::size_t rows;      // of the tile
  std::size_t stride;    // from a group's numbers to the next one's
};

struct Kernels {
  // By layout and rows in the tile, 1 to 16.
  void (*product[layouts][tile_rows + 1])(const PanelProduct&);
  void (*quantise)(const float* x, std::size_t groups, const QuantisedRow& to);
};

extern const Kernels portable_kernels;
#ifdef FORERUN_X86
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

// Those of the instruction set in use.
const Kernels& kernels();

}  // namespace forerun
