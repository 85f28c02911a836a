// How rows enter a head: with a token, and with what is known of the text before it.

#include <algorithm>

#include "multiply.h"
#include "pass.h"
#include "row_math.h"

namespace forerun {

// Makes the thread's columns of the stream of what is known, for all threads to see.
void Pass::enter_known(const Batch& batch, std::size_t thread) {
  const Product& product = network_.entry->features;
  if (batch.featured > 0) {
    const auto [first, last] = columns_of(product.inputs(), thread, threads());
    for (std::size_t row = 0; row < batch.featured && first < last; ++row) {
      features_.put(row, first, last - first, batch.features + row * product.inputs() + first);
    }
    barrier_.wait();
    const Results known = to(stream_, thread);
    product.run(features_, thread, threads(), &known,
                network_.layers[0]->qkv.first_panel(thread, threads()));
  }
  const auto [first, last] = stream_.of(thread);
  const float* given = batch.given;
  for (std::size_t row = batch.featured; row < rows_; ++row, given += network_.shape.width) {
    std::copy(given + first, given + last, stream_.row(thread, row));
  }
  barrier_.wait();
}

// Puts the thread's columns of the embeddings and of the stream, side by side, where q, k and v are
// made of them. Each half has a norm of its own, so none can be a factor of the products.
void Pass::join(const Batch& batch, std::size_t thread) {
  const std::size_t width = network_.shape.width;
  const auto [first, last] = columns_of(2 * width, thread, threads());
  float* const token = joining_[thread].data();
  float* const known = token + width;
  const auto normalise = [&](float* half, const std::vector<float>& weight) {
    const float factor = row_math().rms_factor(half, network_.shape.epsilon, width);
    row_math().scale(half, factor, weight.data(), width, half);
  };
  for (std::size_t row = 0; row < rows_ && first < last; ++row) {
    if (first < width) {
      const auto named = static_cast<std::size_t>(batch.tokens[row]);
      dequantise(network_.ends->embedding->first(), named, 0, width, token);
      normalise(token, network_.entry->token_norm);
    }
    if (last > width) {
      stream_.copy(row, 0, width, known);
      normalise(known, network_.layers[0]->attention_norm);
    }
    joined_.put(row, first, last - first, token + first);
  }
}

}  // namespace forerun
