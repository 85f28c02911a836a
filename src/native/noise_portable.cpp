// The noise one block at a time.

#include "noise_draw.h"

namespace forerun {

const NoiseKernels portable_noise = {noise::Maker<noise::Scalar>::make,
                                     noise::Drawer<noise::Scalar>::draw,
                                     noise::Maker<noise::Scalar>::of_words};

}  // namespace forerun
