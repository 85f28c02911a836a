#include "multiply.h"

#include <algorithm>
#include <stdexcept>

#include "multiply_kernels.h"

namespace forerun {

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
              std::size_t last_panel, float* out, std::size_t stride,
              const std::uint8_t* next) {
  if (w.inputs() != x.inputs()) throw std::invalid_argument("Rows and matrix differ in length.");
  if (first_panel > last_panel || last_panel > w.panels()) {
    throw std::invalid_argument("The matrix has no such panels.");
  }
  const auto& product = kernels().product[static_cast<std::size_t>(w.layout())];
  for (std::size_t panel = first_panel; panel < last_panel; ++panel) {
    const std::size_t first_output = panel * panel_outputs;
    const std::uint8_t* const weights = w.panel(panel);
    // To fetch what is there already costs next to nothing.
    const std::uint8_t* const after = next == nullptr ? weights : next;
    PanelProduct part{weights,
                      panel + 1 < last_panel ? weights + w.panel_bytes() : after,
                      w.inputs(),
                      std::min(panel_outputs, w.outputs() - first_output),
                      {},
                      nullptr,
                      stride};
    for (std::size_t tile = 0; tile < x.tiles(); ++tile) {
      part.x = x.tile(tile);
      part.out = out + tile * tile_rows * stride + first_output;
      product[part.x.rows](part);
    }
  }
}

}  // namespace forerun
