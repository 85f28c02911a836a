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
  }
}

std::size_t Product::bytes() const {
  std::size_t total = 0;
  for (const Matrix& part : parts_) total += part.bytes();
  return total;
}

const std::uint8_t* Product::first_panel(std::size_t thread, std::size_t threads,
                                         std::size_t part) const {
  for (; part < parts_.size(); ++part) {
    const Share share = columns_of(parts_[part].outputs(), thread, threads);
    if (share.first < share.last) return parts_[part].panel(share.first / panel_outputs);
  }
  return nullptr;
}

void Product::run(const Activations& x, std::size_t thread, std::size_t threads,
                  const Results* to, const std::uint8_t* next) const {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const Share share = columns_of(parts_[part].outputs(), thread, threads);
    const std::uint8_t* const after = first_panel(thread, threads, part + 1);
    multiply(parts_[part], x, share.first / panel_outputs,
             (share.last + panel_outputs - 1) / panel_outputs, to[part],
             after != nullptr ? after : next);
  }
}

bool Product::has_floats() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Matrix& part) { return !is_quantised(part.layout()); });
}

bool Product::is_of(std::initializer_list<std::size_t> outputs) const {
  return std::equal(parts_.begin(), parts_.end(), outputs.begin(), outputs.end(),
                    [](const Matrix& part, std::size_t size) { return part.outputs() == size; });
}

void LayerWeights::check(const Shape& shape, std::size_t qkv_inputs) const {
  check_vector(attention_norm, shape.width);
  check_vector(inner_norm, shape.width);
  if (!qkv_bias.empty()) check_vector(qkv_bias, shape.qkv_width());
  if (!q_norm.empty()) check_vector(q_norm, shape.head_dim);
  if (!k_norm.empty()) check_vector(k_norm, shape.head_dim);
  demand(qkv.inputs() == qkv_inputs &&
             qkv.is_of({shape.query_width(), shape.kv_width(), shape.kv_width()}),
         "q, k and v have a wrong shape");
  check_product(output, shape.width, shape.query_width());
  demand(gate_up.inputs() == shape.width && gate_up.is_of({shape.inner, shape.inner}),
         "gate and up have a wrong shape");
  check_product(down, shape.width, shape.inner);
}

bool LayerWeights::has_floats() const {
  return qkv.has_floats() || output.has_floats() || gate_up.has_floats() || down.has_floats();
}

std::size_t LayerWeights::bytes() const {
  const std::size_t floats = attention_norm.size() + qkv_bias.size() + q_norm.size() +
                             k_norm.size() + inner_norm.size();
  return qkv.bytes() + output.bytes() + gate_up.bytes() + down.bytes() + floats * sizeof(float);
}

void EndWeights::check(const Shape& shape) const {
  check_vector(norm, shape.width);
  demand(embedding != nullptr, "no weights");
  check_product(*embedding, shape.vocab, shape.width);
  demand(head().inputs() == shape.width, "a head of another width");
}

void EntryWeights::check(const Shape& shape) const {
  demand(features.is_of({shape.width}), "a matrix has a wrong shape");
  check_vector(token_norm, shape.width);
}

void Network::check() const {
  demand(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "heads that form no groups");
  demand(shape.head_dim > 0 && 2 * shape.pairs <= shape.head_dim, "more turns than components");
  demand(shape.head_dim <= most_head_width, "heads that are too wide");
  demand(ends != nullptr, "no weights");
  ends->check(shape);
  if (entry == nullptr) {
    check_product(ends->head(), shape.vocab, shape.width);
  } else {
    demand(!layers.empty(), "no layer to enter");
    entry->check(shape);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    demand(layers[i] != nullptr, "no weights");
    layers[i]->check(shape, entry != nullptr && i == 0 ? 2 * shape.width : shape.width);
  }
}

bool Network::has_floats() const {
  return ends->has_floats() || (entry != nullptr && entry->features.has_floats()) ||
         std::any_of(layers.begin(), layers.end(),
                     [](const auto& layer) { return layer->has_floats(); });
}

}  // namespace forerun
