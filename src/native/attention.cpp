#include "attention.h"

#include <algorithm>

namespace forerun {
namespace {

std::size_t index(int row) { return static_cast<std::size_t>(row); }

// Scores of up to `most_heads` heads with all they see, in order of positions; the softmax's
// numerators in the end.
class Scores {
 public:
  Scores(float* floats, std::size_t longest, std::size_t pending) {
    for (std::size_t h = 0; h < most_heads; ++h) {
      all_[h] = floats + h * (longest + pending);
      pending_[h] = all_[h] + longest;
    }
  }

  float* of(std::size_t head) { return all_[head]; }
  const float* pending(std::size_t head) const { return pending_[head]; }

  // Where the scores with block `block` of committed, or of pending, positions go.
  void blocks(std::size_t block, bool is_pending, float** out) const {
    for (std::size_t h = 0; h < most_heads; ++h) {
      out[h] = (is_pending ? pending_[h] : all_[h]) + block * lanes;
    }
  }

 private:
  float* all_[most_heads];
  float* pending_[most_heads];
};

}  // namespace

void Attention::prepare(const std::vector<Group>& groups) {
  heads_ = longest_ = pending_ = 0;
  for (const Group& group : groups) {
    heads_ += group.rows.size() * shape_.heads;
    const std::size_t all = group.kv->length() + group.rows.size();
    longest_ = std::max(longest_, padded(all) + lanes);
    pending_ = std::max(pending_, padded(group.rows.size()));
  }
  const std::size_t floats = most_heads * (longest_ + pending_ + shape_.head_width());
  for (auto& scratch : scratch_) {
    if (scratch.size() < floats) scratch.resize(floats);
  }
}

void Attention::run(const std::vector<Group>& groups, std::size_t layer, std::size_t thread,
                    const float* queries, float* out) {
  const Share share(heads_, thread, scratch_.size());
  const std::size_t width = shape_.head_width(), size = shape_.group();
  std::size_t start = 0;
  for (const Group& group : groups) {
    const std::size_t of_kv_head = group.rows.size() * size;
    const std::size_t end = start + shape_.kv_heads * of_kv_head;
    std::size_t at = std::max(share.first, start);
    const std::size_t last = std::min(share.last, end);
    while (at < last) {
      const std::size_t kv_head = (at - start) / of_kv_head;
      const std::size_t stop = std::min(last, start + (kv_head + 1) * of_kv_head);
      Head heads[most_heads];
      std::size_t count = 0;
      for (; at < stop && count < most_heads; ++at, ++count) {
        const std::size_t inside = (at - start) % of_kv_head, local = inside / size;
        const std::size_t head = kv_head * size + inside % size, row = group.rows[local];
        heads[count] = {local, queries + (row * shape_.heads + head) * width,
                        out + (row * shape_.heads + head) * shape_.head_dim};
      }
      attend(*group.kv, layer, kv_head, heads, count, scratch_[thread]);
    }
    start = end;
  }
}

void Attention::attend(KVSequence& kv, std::size_t layer, std::size_t kv_head, const Head* heads,
                       std::size_t count, std::vector<float>& scratch) const {
  const RowMath& math = row_math();
  const std::size_t width = shape_.head_width(), length = kv.length();
  const std::size_t pages = (length + lanes - 1) / lanes;
  Scores scores(scratch.data(), longest_, pending_);
  float* const sums = scratch.data() + most_heads * (longest_ + pending_);
  const float* queries[most_heads];
  float* out[most_heads];
  std::size_t latest = 0;
  for (std::size_t h = 0; h < count; ++h) {
    queries[h] = heads[h].query;
    latest = std::max(latest, heads[h].local);
  }
  for (std::size_t page = 0; page < pages; ++page) {
    scores.blocks(page, false, out);
    math.scores(queries, count, kv.page(page).keys(layer, kv_head), width, out);
  }
  for (std::size_t page = 0; page <= latest / lanes; ++page) {
    scores.blocks(page, true, out);
    math.scores(queries, count, kv.pending(page).keys(layer, kv_head), width, out);
  }
  float totals[most_heads];
  for (std::size_t h = 0; h < count; ++h) {
    const std::vector<int>& path = kv.path(heads[h].local);
    float* const all = scores.of(h);
    // What the last page holds behind the committed end is overwritten here.
    for (std::size_t i = 0; i < path.size(); ++i) {
      all[length + i] = scores.pending(h)[index(path[i])];
    }
    totals[h] = math.exponentials(all, length + path.size());
  }
  std::fill(sums, sums + count * width, 0.0f);
  for (std::size_t h = 0; h < count; ++h) out[h] = sums + h * width;
  for (std::size_t page = 0; page < pages; ++page) {
    const float* weights[most_heads];
    for (std::size_t h = 0; h < count; ++h) weights[h] = scores.of(h) + page * lanes;
    math.weigh(weights, count, kv.page(page).values(layer, kv_head),
               std::min(lanes, length - page * lanes), width, out);
  }
  for (std::size_t h = 0; h < count; ++h) {
    const std::vector<int>& path = kv.path(heads[h].local);
    for (std::size_t i = 0, run; i < path.size(); i += run) {
      // Rows that follow each other in the path and in a page are one call.
      const std::size_t row = index(path[i]), place = row % lanes;
      for (run = 1; i + run < path.size() && place + run < lanes; ++run) {
        if (index(path[i + run]) != row + run) break;
      }
      const float* const weights = scores.of(h) + length + i;
      const float* const values = kv.pending(row / lanes).values(layer, kv_head);
      math.weigh(&weights, 1, values + place * width, run, width, &out[h]);
    }
    for (std::size_t i = 0; i < shape_.head_dim; ++i) heads[h].out[i] = out[h][i] / totals[h];
  }
}

}  // namespace forerun
