// The warp's sweeps, one number at a time.

#include "noise_lanes.h"
#include "warp_lanes.h"

namespace forerun {

const WarpKernels portable_warp = noise::warp_kernels_of<noise::Scalar>();

}  // namespace forerun
