#include "multiply.h"

#include <algorithm>
#include <stdexcept>

#include "multiply_kernels.h"

namespace forerun {

// More rows go over the weights anew.
constexpr std::size_t tiles_at_once = 16;

constexpr float ones[tile_rows] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

const Kernels& kernels() {
#ifdef FORERUN_X86
  switch (instruction_set()) {
    case InstructionSet::avx512: return avx512_kernels;
    case InstructionSet::avx2: return avx2_kernels;
    case InstructionSet::portable: break;
  }
#endif
  return portable_kernels;
}

void multiply(const Matrix& w, const Activations& x, std::size_t first_panel,
              std::size_t last_panel, const Results& to, const std::uint8_t* next) {
  if (w.inputs() != x.inputs()) throw std::invalid_argument("Rows and matrix differ in length.");
  if (first_panel > last_panel || last_panel > w.panels()) {
    throw std::invalid_argument("The matrix has no such panels.");
  }
  if (!is_quantised(w.layout()) && !x.keeps_floats()) {
    throw std::invalid_argument("The floats of the rows are not there.");
  }
  const auto& product = kernels().product[static_cast<std::size_t>(w.layout())];
  // What does not change from panel to panel is written once. Numbers that are copied in wider
  // pieces than they were just written in wait for all earlier stores, those of results to lines
  // that another core has among them.
  PanelProduct parts[tiles_at_once];
  for (std::size_t first = 0; first < x.tiles(); first += tiles_at_once) {
    const std::size_t tiles = std::min(tiles_at_once, x.tiles() - first);
    for (std::size_t i = 0; i < tiles; ++i) {
      parts[i].inputs = w.inputs();
      parts[i].stride = to.stride;
      parts[i].factors = to.factors == nullptr ? ones : to.factors + (first + i) * tile_rows;
      x.describe(first + i, parts[i].x);
    }
    float* const out = to.out + first * tile_rows * to.stride;
    for (std::size_t panel = first_panel; panel < last_panel; ++panel) {
      const std::size_t output = panel * panel_outputs;
      const std::uint8_t* const weights = w.panel(panel);
      // To fetch what is there already costs next to nothing.
      const std::uint8_t* const after = next == nullptr ? weights : next;
      for (std::size_t i = 0; i < tiles; ++i) {
        PanelProduct& part = parts[i];
        part.weights = weights;
        part.next = panel + 1 < last_panel ? weights + w.panel_bytes() : after;
        part.outputs = std::min(panel_outputs, w.outputs() - output);
        part.out = out + i * tile_rows * to.stride + (panel - first_panel) * panel_outputs;
        product[part.x.rows](part);
      }
    }
  }
}

}  // namespace forerun
