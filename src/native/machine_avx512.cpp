#include "machine_body.h"

namespace forerun {

std::uint64_t sum_avx512(const std::uint8_t* data, std::size_t bytes) { return sum_words(data, bytes); }

}  // namespace forerun
