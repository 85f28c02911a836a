// The likeliest tokens of rows of logits, and what all others weigh together: the compiled twin of
// core/likeliest.py, with the same bits on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forerun {

// The `most` highest of logits[size], best first, of equals the lowest token first; -inf and NaN
// are never among them. Where there are fewer, tokens are -1 and their logits -inf.
//
// Returns the sum of exp(logit - highest) over all the others, by an exponential that is right
// within 5 %: what it is for, a drafter's confidence, is itself calibrated by counting.
double likeliest(const float* logits, std::size_t size, std::size_t most, std::int32_t* tokens,
                 float* values);

using LikeliestKernel = double (*)(const float*, std::size_t, std::size_t, std::int32_t*, float*);

extern const LikeliestKernel portable_likeliest;
#ifdef FORERUN_X86
extern const LikeliestKernel avx2_likeliest;
extern const LikeliestKernel avx512_likeliest;
#endif

}  // namespace forerun
