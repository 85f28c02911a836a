// Attention of a pass's rows over their sequences' keys and values (Vaswani et al. 2017, 3.2.1).
//
// A row sees the committed tokens of its sequence and its ancestors in the pass, in ascending
// order of positions. Each score is one product in a fixed order; the softmax has two passes; the
// values are added one position after the other, or, if they are words, one span of positions after
// the other. Nothing depends on where a position is stored.
#pragma once

#include <cstddef>
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
  Attention(const Shape& shape, KVType type, std::size_t threads)
      : shape_(shape), type_(type), scratch_(threads) {}

  // Makes room for a pass of `rows` rows; call it before the threads begin.
  void prepare(const std::vector<Group>& groups, std::size_t rows);

  // Gives each thread its share of all heads of all rows, for the pass.
  void share_out(const std::vector<Group>& groups, std::size_t thread);

  // Takes the queries that the thread will attend with: make(row, head, query) writes one,
  // [head_dim].
  template <typename Make>
  void take_queries(std::size_t thread, Make make) {
    for (const Heads& heads : scratch_[thread].work) {
      for (std::size_t h = 0; h < heads.count; ++h) {
        float query[most_head_width];
        make(heads.head[h].row, heads.head[h].first / shape_.head_dim, query);
        take_query(scratch_[thread], heads.head[h].query, query);
      }
    }
  }

  // Computes the thread's share and puts it into `out`, or, if a head is not whole groups, writes
  // it to the floats there, to be quantised once all are done.
  void run(std::size_t layer, std::size_t thread, Activations& out);
  bool quantises() const { return shape_.head_dim % group_inputs == 0; }

 private:
  // One query head of one row; `query` counts the thread's.
  struct Head {
    std::size_t local;
    std::size_t query;
    std::size_t row;
    std::size_t first;  // component of the row
  };

  // Up to `most_heads` heads over one head of keys and values.
  struct Heads {
    KVSequence* kv;
    std::size_t kv_head;
    Head head[most_heads];
    std::size_t count;
    std::size_t layer = 0;
  };

  // A thread's own room.
  struct Scratch {
    std::vector<Heads> work;     // the thread's share of a pass
    std::vector<float> queries;  // [queries][width]
    std::vector<Word> query_words;
    std::vector<float> query_scales;
    std::vector<float> scores;   // [heads][longest]
    std::vector<float> totals;   // [heads][width]
    std::vector<float> scales;   // [heads][longest]: of the values
    std::vector<Word> weights;   // [heads][longest]
    std::vector<std::int32_t> sums;  // [heads][width]
  };

  float* scores(Scratch& scratch, std::size_t h) const { return &scratch.scores[h * longest_]; }

  void take_query(Scratch& scratch, std::size_t at, const float* query) const;
  void attend(const Heads& heads, Scratch& scratch, Activations& out) const;
  void score_floats(const Heads& heads, Scratch& scratch) const;
  void score_words(const Heads& heads, Scratch& scratch) const;
  void weigh_floats(const Heads& heads, Scratch& scratch) const;
  void weigh_words(const Heads& heads, Scratch& scratch) const;
  static KVPage::Words words_at(const Heads& heads, std::size_t place);
  static std::size_t end_of(const Heads& heads);
  void gather_scales(const Heads& heads, Scratch& scratch) const;
  void weigh_in_order(const Heads& heads, std::size_t first, std::size_t last,
                      std::int32_t* const* sums, Scratch& scratch) const;
  void weigh_pending(const Heads& heads, std::size_t first, std::int32_t* const* sums,
                     Scratch& scratch) const;
  std::size_t seen(const Heads& heads, std::size_t h) const {
    return heads.kv->length() + heads.kv->path(heads.head[h].local).size();
  }

  Shape shape_;
  KVType type_;
  std::size_t heads_ = 0;    // of all rows
  std::size_t longest_ = 0;  // room for the scores of one head
  std::vector<Scratch> scratch_;
};

}  // namespace forerun
