// The warp's sweeps, eight numbers at a time.

#include "lanes_avx512.h"
#include "warp_lanes.h"

namespace forerun {

const WarpKernels avx512_warp = noise::warp_kernels_of<noise::Avx512>();

}  // namespace forerun
