// The noise one block at a time.

#include "noise_draw.h"

namespace forerun {

const NoiseKernels portable_noise = noise::kernels_of<noise::Scalar>();

}  // namespace forerun
