// The sweeps of the warp over a whole row, as one instruction set does them; warp.cpp chooses.
// A row of weights is either the logits themselves (float) or, where masks, bias or penalties have
// changed them, doubles.
#pragma once

#include "noise.h"
#include "warp.h"

namespace forerun {

// Of a row of weights: score(x) = (weight(x) - highest) / temperature.
struct Scale {
  double highest;
  double temperature;
};

template <class Number>
struct RowKernels {
  // maxima[i] = the largest of weights 64 i .. 64 i + 63, NaN left out; whether none of them is
  // NaN or +infinity.
  bool (*maxima)(const Number* weights, std::size_t size, double* maxima);
  // All scores.
  void (*scores)(const Number* weights, std::size_t size, const Scale& scale, double* scores);
  // The sum of exp(score), in core/softmax.py's order.
  double (*sum)(const Number* weights, std::size_t size, const Scale& scale);
  // argmax(score + noise); `best` is where the highest weight stands first.
  std::size_t (*draw)(const NoiseAddress& at, const Number* weights, std::size_t size,
                      const double* maxima, const Scale& scale, std::size_t best);
};

struct WarpKernels {
  RowKernels<float> logits;
  RowKernels<double> weights;
  // weights = logits + shift, or + 0 where `shift` is null.
  void (*shift)(const float* logits, const double* shift, std::size_t size, double* weights);
  void (*law)(const double* scores, std::size_t size, double* p);
  void (*exponentials)(const double* x, std::size_t count, double* out);
  double (*largest)(const float* logits, std::size_t size);  // NaN left out
};

extern const WarpKernels portable_warp;
#ifdef FORERUN_X86
extern const WarpKernels avx2_warp;
extern const WarpKernels avx512_warp;
#endif

// Those in use.
const WarpKernels& warp_kernels();
inline const RowKernels<float>& row_kernels(const float*) { return warp_kernels().logits; }
inline const RowKernels<double>& row_kernels(const double*) { return warp_kernels().weights; }

}  // namespace forerun
