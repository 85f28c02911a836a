#include "network.h"

#include <algorithm>
#include <stdexcept>

#include "multiply.h"

namespace forerun {
namespace {

void demand(bool is_right, const char* what) {
  if (!is_right) throw std::invalid_argument(what);
}

void check_product(const Product& product, std::size_t outputs, std::size_t inputs) {
  demand(product.outputs() == outputs && product.inputs() == inputs, "a matrix has a wrong shape");
}

void check_vector(const std::vector<float>& vector, std::size_t size) {
  demand(vector.size() == size, "a vector has a wrong size");
}

}  // namespace

Product::Product(std::vector<Matrix> parts) : parts_(std::move(parts)) {
  demand(!parts_.empty(), "a product of no matrix");
  for (const Matrix& part : parts_) {
    demand(part.inputs() == inputs(), "matrices of different inputs");
    outputs_ += part.outputs();
    panels_ += part.panels();
  }
}

std::size_t Product::bytes() const {
  std::size_t total = 0;
  for (const Matrix& part : parts_) total += part.bytes();
  return total;
}

const std::uint8_t* Product::panel(std::size_t index) const {
  auto part = parts_.begin();
  for (; index >= part->panels(); ++part) index -= part->panels();
  return part->panel(index);
}

const std::uint8_t* Product::first_panel(std::size_t thread, std::size_t threads) const {
  const Share share(panels_, thread, threads);
  return share.first < share.last ? panel(share.first) : nullptr;
}

void Product::run(const Activations& x, std::size_t thread, std::size_t threads, float* out,
                  const std::uint8_t* next) const {
  const Share share(panels_, thread, threads);
  std::size_t start = 0;
  for (const Matrix& part : parts_) {
    const std::size_t end = start + part.panels();
    const std::size_t first = std::max(share.first, start), last = std::min(share.last, end);
    if (first < last) {
      multiply(part, x, first - start, last - start, out, outputs_,
               last < share.last ? panel(last) : next);
    }
    start = end;
    out += part.outputs();
  }
}

void Product::run_columns(const Activations& x, std::size_t first, std::size_t last, float* out,
                          const std::uint8_t* next) const {
  const std::size_t first_panel = first / panel_outputs;
  const std::size_t last_panel = (last + panel_outputs - 1) / panel_outputs;
  for (auto part = parts_.begin(); part != parts_.end(); ++part) {
    const auto after = part + 1;
    multiply(*part, x, first_panel, last_panel, out, outputs_,
             after == parts_.end() ? next : after->panel(first_panel));
    out += part->outputs();
  }
}

bool Product::is_of(std::size_t count, std::size_t outputs) const {
  return parts_.size() == count &&
         std::all_of(parts_.begin(), parts_.end(),
                     [&](const Matrix& part) { return part.outputs() == outputs; });
}

void LayerWeights::check(const Shape& shape) const {
  check_vector(attention_norm, shape.width);
  check_vector(inner_norm, shape.width);
  if (!qkv_bias.empty()) check_vector(qkv_bias, shape.qkv_width());
  if (!q_norm.empty()) check_vector(q_norm, shape.head_dim);
  if (!k_norm.empty()) check_vector(k_norm, shape.head_dim);
  check_product(qkv, shape.qkv_width(), shape.width);
  check_product(output, shape.width, shape.query_width());
  demand(gate_up.inputs() == shape.width && gate_up.is_of(2, shape.inner),
         "gate and up have a wrong shape");
  check_product(down, shape.width, shape.inner);
}

std::size_t LayerWeights::bytes() const {
  const std::size_t floats = attention_norm.size() + qkv_bias.size() + q_norm.size() +
                             k_norm.size() + inner_norm.size();
  return qkv.bytes() + output.bytes() + gate_up.bytes() + down.bytes() + floats * sizeof(float);
}

void EndWeights::check(const Shape& shape) const {
  check_vector(norm, shape.width);
  check_product(embedding, shape.vocab, shape.width);
  check_product(head(), shape.vocab, shape.width);
}

void Network::check() const {
  demand(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "heads that form no groups");
  demand(shape.head_dim > 0 && 2 * shape.pairs <= shape.head_dim, "more turns than components");
  demand(shape.head_dim <= most_head_width, "heads that are too wide");
  demand(ends != nullptr, "no weights");
  ends->check(shape);
  for (const auto& layer : layers) {
    demand(layer != nullptr, "no weights");
    layer->check(shape);
  }
}

}  // namespace forerun
