// The noise four blocks at a time.

#include "lanes_avx2.h"
#include "noise_draw.h"

namespace forerun {

const NoiseKernels avx2_noise = noise::kernels_of<noise::Avx2>();

}  // namespace forerun
