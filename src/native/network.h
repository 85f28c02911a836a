// The weights of a network, packed, and the numbers that say how a pass goes through them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "activations.h"
#include "columns.h"
#include "matrix.h"
#include "multiply.h"
#include "row_math.h"
#include "threads.h"

namespace forerun {

constexpr std::size_t most_head_width = 1024;

struct Shape {
  std::size_t vocab;
  std::size_t width;
  std::size_t heads;
  std::size_t kv_heads;  // each serves heads / kv_heads query heads, which are neighbours
  std::size_t head_dim;
  std::size_t inner;
  std::size_t pairs;     // how many pairs of a head's leading components turn with the position
  bool is_interleaved;   // pairs are (0, 1), (2, 3), ..., or else (0, pairs), (1, pairs + 1), ...
  float epsilon;

  std::size_t group() const { return heads / kv_heads; }
  std::size_t query_width() const { return heads * head_dim; }
  std::size_t kv_width() const { return kv_heads * head_dim; }
  std::size_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::size_t head_width() const { return padded(head_dim); }
};

// Matrices of the same inputs whose outputs stand side by side, such as q, k and v.
class Product {
 public:
  // Throws std::invalid_argument if there is none, or their inputs differ.
  explicit Product(std::vector<Matrix> parts);
  Product(Product&&) = default;
  Product(const Product&) = delete;

  std::size_t inputs() const { return parts_.front().inputs(); }
  std::size_t outputs() const { return outputs_; }
  std::size_t bytes() const;
  const Matrix& first() const { return parts_.front(); }

  // Writes the thread's columns of each matrix, of the first one to to[0]. `next`, if not null, is
  // the panel that the thread needs afterwards: it is fetched early.
  void run(const Activations& x, std::size_t thread, std::size_t threads, const Results* to,
           const std::uint8_t* next) const;

  // Where the thread's columns begin, of the matrices from `part` on; null if it has none.
  const std::uint8_t* first_panel(std::size_t thread, std::size_t threads,
                                  std::size_t part = 0) const;

  // Whether it is of matrices of so many outputs.
  bool is_of(std::initializer_list<std::size_t> outputs) const;

  bool has_floats() const;  // among its weights

 private:
  std::vector<Matrix> parts_;
  std::size_t outputs_ = 0;
};

struct LayerWeights {
  std::vector<float> attention_norm;
  Product qkv;                  // three matrices
  std::vector<float> qkv_bias;  // empty: none
  std::vector<float> q_norm;    // of each head; empty: none
  std::vector<float> k_norm;
  Product output;
  std::vector<float> inner_norm;
  Product gate_up;
  Product down;
  bool turns = true;  // queries and keys, with the position

  // Throws std::invalid_argument if a size is not what the shape asks for; q, k and v have so many
  // inputs.
  void check(const Shape& shape, std::size_t qkv_inputs) const;
  bool has_floats() const;
  std::size_t bytes() const;
};

struct EndWeights {
  std::shared_ptr<const Product> embedding;  // which a head shares with its target
  std::vector<float> norm;
  std::optional<Product> own_head;  // none: the head is the embedding

  const Product& head() const { return own_head ? *own_head : *embedding; }
  void check(const Shape& shape) const;
  bool has_floats() const { return head().has_floats(); }
  std::size_t bytes() const { return head().bytes() + norm.size() * sizeof(float); }
};

// How rows enter a head that was learned from a target (EAGLE-3, Li et al. 2025): the stream begins
// as what is known of the text before the token, a product of the target's hidden states or what
// an earlier row has come to. The first layer's q, k and v read the token's embedding and the
// stream side by side, each with a norm of its own; the stream's is the layer's.
struct EntryWeights {
  Product features;
  std::vector<float> token_norm;

  void check(const Shape& shape) const;
  std::size_t bytes() const { return features.bytes() + token_norm.size() * sizeof(float); }
};

struct Network {
  Shape shape;
  std::vector<std::shared_ptr<const LayerWeights>> layers;
  std::shared_ptr<const EndWeights> ends;
  std::shared_ptr<const EntryWeights> entry;  // null: the stream begins as the token's embedding

  void check() const;
  bool has_floats() const;  // among the weights
};

}  // namespace forerun
