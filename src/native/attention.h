// Attention of a pass's rows over their sequences' keys and values (Vaswani et al. 2017, 3.2.1).
//
// A row sees the committed tokens of its sequence and its ancestors in the pass, in ascending
// order of positions. Each score is one product in a fixed order; the softmax has two passes; the
// values are added one position after the other. Nothing depends on where a position is stored.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kv.h"
#include "network.h"

namespace forerun {

// The rows of one sequence in a pass: local row i is row rows[i] of the pass.
struct Group {
  KVSequence* kv;
  std::vector<std::size_t> rows;
};

class Attention {
 public:
  Attention(const Shape& shape, std::size_t threads)
      : shape_(shape), scratch_(threads) {}

  // Makes room for a pass; call it before the threads begin.
  void prepare(const std::vector<Group>& groups);

  // Computes the thread's share of all heads of all rows: from queries, [rows][heads][padded
  // head_dim], to out, [rows][heads * head_dim].
  void run(const std::vector<Group>& groups, std::size_t layer, std::size_t thread,
           const float* queries, float* out);

 private:
  // One query head of one row.
  struct Head {
    std::size_t local;
    const float* query;
    float* out;
  };

  void attend(KVSequence& kv, std::size_t layer, std::size_t kv_head, const Head* heads,
              std::size_t count, std::vector<float>& scratch) const;

  Shape shape_;
  std::size_t heads_ = 0;     // of all rows
  std::size_t longest_ = 0;   // room for the scores of one head
  std::size_t pending_ = 0;   // room for its scores with the rows of the pass
  std::vector<std::vector<float>> scratch_;
};

}  // namespace forerun
