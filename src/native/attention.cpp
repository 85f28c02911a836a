#include "attention.h"

#include <algorithm>
#include <cmath>

#include "aligned.h"

namespace forerun {
namespace {

constexpr std::size_t room_together = 512 << 10;  // bytes

std::size_t whole_pages(std::size_t positions) {
  return (positions + page_positions - 1) / page_positions * page_positions;
}

}  // namespace

void Attention::prepare(const std::vector<Group>& groups, std::size_t rows) {
  const std::size_t width = shape_.head_width();
  longest_ = 0;
  for (const Group& group : groups) {
    longest_ = std::max(longest_, whole_pages(group.kv->length() + group.rows.size()));
  }
  // What is read and written of each position and head is to stay in a core's second cache.
  const std::size_t bytes = std::max(longest_, page_positions) * (2 * sizeof(float) + sizeof(Word));
  together_ = std::clamp(room_together / bytes / most_heads * most_heads, most_heads, most_together);
  heads_ = rows * shape_.heads;
  const std::size_t most = heads_ / scratch_.size() + 1;  // of one thread
  for (Scratch& scratch : scratch_) {
    make_room(scratch.queries, most * width);
    make_room(scratch.scores, together_ * longest_);
    make_room(scratch.totals, together_ * width);
    if (type_ == KVType::floats) continue;
    make_room(scratch.query_words, most * width);
    make_room(scratch.query_scales, most);
    make_room(scratch.place_scales, longest_);
    make_room(scratch.scales, together_ * longest_);
    make_room(scratch.weights, together_ * longest_);
    make_room(scratch.sums, together_ * width);
  }
}

void Attention::take_query(Scratch& scratch, std::size_t at, const float* query) const {
  const std::size_t width = shape_.head_width(), size = shape_.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  float* const to = &scratch.queries[at * width];
  for (std::size_t i = 0; i < size; ++i) to[i] = query[i] * scale;
  std::fill(to + size, to + width, 0.0f);
  if (type_ == KVType::floats) return;
  scratch.query_scales[at] =
      word_math().quantise(to, width, query_limit, &scratch.query_words[at * width]);
}

// Gives the thread its share of all heads, in calls over one head of keys and values.
void Attention::share_out(const std::vector<Group>& groups, std::size_t thread) {
  const Share share(heads_, thread, scratch_.size());
  const std::size_t size = shape_.group();
  std::vector<Heads>& work = scratch_[thread].work;
  work.clear();
  std::size_t start = 0, query = 0;
  for (const Group& group : groups) {
    const std::size_t of_kv_head = group.rows.size() * size;
    const std::size_t end = start + shape_.kv_heads * of_kv_head;
    std::size_t at = std::max(share.first, start);
    const std::size_t last = std::min(share.last, end);
    while (at < last) {
      const std::size_t kv_head = (at - start) / of_kv_head;
      const std::size_t stop = std::min(last, start + (kv_head + 1) * of_kv_head);
      Heads heads{group.kv, kv_head, {}, 0};
      for (; at < stop && heads.count < together_; ++at, ++heads.count, ++query) {
        const std::size_t inside = (at - start) % of_kv_head, rows = group.rows.size();
        const std::size_t head = kv_head * size + inside / rows, local = inside % rows;
        const std::size_t row = group.rows[local];
        heads.head[heads.count] = {local, query, row, head * shape_.head_dim};
      }
      work.push_back(heads);
    }
    start = end;
  }
  // Two neighbours then come last to what they share, and none fetches it for both.
  if (thread % 2 == 1) std::reverse(work.begin(), work.end());
}

// The last place that any of the heads may see, and one more.
std::size_t Attention::end_of(const Heads& heads) {
  std::size_t latest = 0;
  for (std::size_t h = 0; h < heads.count; ++h) latest = std::max(latest, heads.head[h].local);
  return heads.kv->length() + latest + 1;
}

void Attention::run(std::size_t layer, std::size_t thread, Activations& out) {
  for (Heads& heads : scratch_[thread].work) {
    heads.layer = layer;
    attend(heads, scratch_[thread], out);
  }
}

void Attention::attend(const Heads& heads, Scratch& scratch, Activations& out) const {
  const std::size_t length = heads.kv->length(), width = shape_.head_width();
  const bool is_words = type_ == KVType::words;
  if (is_words) {
    score_words(heads, scratch);
  } else {
    score_floats(heads, scratch);
  }
  float sums[most_together];
  for (std::size_t h = 0; h < heads.count; ++h) {
    const std::vector<int>& path = heads.kv->path(heads.head[h].local);
    float* const all = scores(scratch, h);
    // A row stands at its place or behind it, so what is read here was not written over.
    for (std::size_t i = 0; i < path.size(); ++i) all[length + i] = all[heads.kv->place(path[i])];
    sums[h] = row_math().exponentials(all, length + path.size());
  }
  std::fill_n(scratch.totals.begin(), heads.count * width, 0.0f);
  if (is_words) {
    weigh_words(heads, scratch);
  } else {
    weigh_floats(heads, scratch);
  }
  for (std::size_t h = 0; h < heads.count; ++h) {
    const float* const total = &scratch.totals[h * width];
    const Head& head = heads.head[h];
    float own[most_head_width];
    float* const to = quantises() ? own : out.row(head.row) + head.first;
    for (std::size_t i = 0; i < shape_.head_dim; ++i) to[i] = total[i] / sums[h];
    if (quantises()) out.put(head.row, head.first, shape_.head_dim, own);
  }
}

}  // namespace forerun
