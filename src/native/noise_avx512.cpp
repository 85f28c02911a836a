// The noise eight blocks at a time.

#include "lanes_avx512.h"
#include "noise_draw.h"

namespace forerun {

const NoiseKernels avx512_noise = noise::kernels_of<noise::Avx512>();

}  // namespace forerun
