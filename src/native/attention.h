// Attention of a pass's rows over their sequences' keys and values (Vaswani et al. 2017, 3.2.1).
//
// A row sees the committed tokens of its sequence and its ancestors in the pass, in ascending
// order of positions. Each score is one product in a fixed order; the softmax has two passes; the
// values are added one position after the other, or, if they are words, one span of positions after
// the other. Nothing depends on where a position is stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "kv.h"
#include "network.h"

namespace forerun {

// The rows of one sequence in a pass: local row i is row rows[i] of the pass.
struct Group {
  KVSequence* kv;
  std::vector<std::size_t> rows;
};

// Heads that go over a page of keys and values together: 8 rows of 4 each.
constexpr std::size_t most_together = 32;

using AlignedWords = std::vector<Word, Aligned<Word, cache_line>>;
using AlignedSums = std::vector<std::int32_t, Aligned<std::int32_t, cache_line>>;

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

  // Up to `most_together` heads over one head of keys and values. All go over a page before the
  // next one, which comes from memory meanwhile.
  struct Heads {
    KVSequence* kv;
    std::size_t kv_head;
    Head head[most_together];
    std::size_t count;
    std::size_t layer = 0;
  };

  // A thread's own room.
  struct Scratch {
    std::vector<Heads> work;     // the thread's share of a pass
    AlignedFloats queries;       // [queries][width]
    AlignedWords query_words;
    AlignedFloats query_scales;
    AlignedFloats scores;        // [heads][longest]
    AlignedFloats totals;        // [heads][width]
    AlignedFloats place_scales;  // [longest]: of the values, by place
    AlignedFloats scales;        // [heads][longest]: of the values, by position
    AlignedWords weights;        // [heads][longest]
    AlignedSums sums;            // [heads][width]
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
  template <typename Call>
  void in_calls(const Heads& heads, const void* next, Call call) const;
  void gather_scales(const Heads& heads, Scratch& scratch) const;
  void weigh_in_order(const Heads& heads, std::size_t first, std::size_t last,
                      std::int32_t* const* sums, Scratch& scratch) const;
  void weigh_pending(const Heads& heads, std::size_t first, std::int32_t* const* sums,
                     Scratch& scratch) const;
  std::size_t seen(const Heads& heads, std::size_t h) const {
    return heads.kv->length() + heads.kv->path(heads.head[h].local).size();
  }

  // The bytes of one head's keys, or values, in a page.
  std::size_t half_bytes() const {
    const std::size_t size = type_ == KVType::words ? sizeof(Word) : sizeof(float);
    return shape_.head_width() * page_positions * size;
  }

  Shape shape_;
  KVType type_;
  std::size_t heads_ = 0;     // of all rows
  std::size_t longest_ = 0;   // room for the scores of one head
  std::size_t together_ = 0;  // how many heads go over the pages together
  std::vector<Scratch> scratch_;
};

// Calls call(first, count) for as many heads at a time as the kernels take, and fetches in between
// what comes next: all at once would mostly be dropped.
template <typename Call>
void Attention::in_calls(const Heads& heads, const void* next, Call call) const {
  const std::size_t calls = (heads.count + most_heads - 1) / most_heads;
  const auto* const bytes = static_cast<const std::byte*>(next);
  for (std::size_t i = 0; i < calls; ++i) {
    const Share lines(next == nullptr ? 0 : half_bytes() / cache_line, i, calls);
    for (std::size_t line = lines.first; line < lines.last; ++line) {
      __builtin_prefetch(bytes + line * cache_line, 0, 2);
    }
    call(i * most_heads, std::min(most_heads, heads.count - i * most_heads));
  }
}

}  // namespace forerun
