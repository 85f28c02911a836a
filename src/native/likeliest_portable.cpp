#include "likeliest_body.h"

namespace forerun {

const LikeliestKernel portable_likeliest = likeliest_of_row;

}  // namespace forerun
