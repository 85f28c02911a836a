#include "likeliest_body.h"

namespace forerun {

const LikeliestKernel avx2_likeliest = likeliest_of_row;

}  // namespace forerun
