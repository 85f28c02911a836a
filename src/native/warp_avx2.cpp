// The warp's sweeps, four numbers at a time.

#include "lanes_avx2.h"
#include "warp_lanes.h"

namespace forerun {

const WarpKernels avx2_warp = noise::warp_kernels_of<noise::Avx2>();

}  // namespace forerun
